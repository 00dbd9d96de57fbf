"""The functions that reports have beyond those that all engines know. Each is an expression of SQL.

They are macros of DuckDB's and temporary functions of Spark's. An integer is a decimal(38, 0) here: sums of nanoseconds
or bytes may be larger than a bigint.
"""

from typing import NamedTuple


class Function(NamedTuple):
    """A function of integers. returns: its type; body: an expression of the parameters."""

    name: str
    parameters: tuple[str, ...]
    returns: str
    body: str

    def create(self) -> str:
        """Return Spark's statement that makes it."""
        typed = ", ".join(f"{parameter} {INTEGER}" for parameter in self.parameters)
        return f"create or replace temporary function {self.name}({typed}) returns {self.returns} return {self.body}"


INTEGER = "decimal(38, 0)"
DECIMAL = "decimal(28, 9)"

FUNCTIONS = (
    # Nanoseconds as seconds, exactly. Of a wider decimal Spark would drop digits of the product.
    Function("seconds", ("ns",), DECIMAL, f"cast(cast(ns as decimal(28, 0)) * 0.000000001 as {DECIMAL})"),
    # A quotient with nine digits, the last one rounded half away from zero; null where b is 0, or where it would have
    # more than 18 digits before the point. b is not negative. The whole part and the rest are divided each by itself,
    # since div makes a bigint.
    Function(
        "quotient",
        ("a", "b"),
        DECIMAL,
        f"case when abs(cast(a as {INTEGER})) < 1000000000000000000 * cast(b as {INTEGER}) then "
        "cast(cast(div(a, b) as decimal(19, 0)) + 0.000000001 * cast(div("
        f"2000000000 * (cast(a as {INTEGER}) - cast(div(a, b) as {INTEGER}) * cast(b as {INTEGER}))"
        f" + case when a < 0 then -cast(b as {INTEGER}) else cast(b as {INTEGER}) end, 2 * cast(b as {INTEGER}))"
        f" as decimal(10, 0)) as {DECIMAL}) end",
    ),
    # The number of the hour since 1970 that a time is in; before that they are negative.
    Function(
        "hour_of",
        ("ns",),
        "bigint",
        "div(ns, 3600000000000) - case when ns < 0 and ns % 3600000000000 <> 0 then 1 else 0 end",
    ),
)
