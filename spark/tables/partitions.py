"""How Spark names the directories of a table's partitions: date=2026-01-02/host=a."""

from urllib.parse import unquote

# What Spark writes as %XX in the name of a partition's directory.
_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^" + "".join(map(chr, range(1, 32))))
_NULL = "__HIVE_DEFAULT_PARTITION__"


def escape_name(name: str) -> str:
    """Return a host's or date's name as it is written in a directory's name."""
    return "".join(f"%{ord(letter):02X}" if letter in _ESCAPED else letter for letter in name) or _NULL


def names_of(path: str) -> dict[str, str]:
    """Return what the directories of a data file say: date and host."""
    pairs = (part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
    return {name: unquote(value) for name, value in pairs}
