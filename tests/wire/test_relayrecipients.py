"""control/relayrecipients: which recipients of relayed domains exist."""

import pytest

from queue_wire.control.relayrecipients import RelayRecipients, exists_behind, unpack_relay_recipients
from queue_wire.format_error import LineError

LINES = unpack_relay_recipients(b"# ours\nAnn@Relayed.example\n\n@all.example \nx@all.example\na@b@two.example\n")


@pytest.mark.parametrize(
    ("address", "exists"),
    [
        (b"ann@relayed.example", True),
        (b"ANN@RELAYED.EXAMPLE", True),
        (b"ann-x@relayed.example", False),
        (b"bob@relayed.example", False),
        (b"@relayed.example", False),
        (b"whoever@all.example", True),
        (b"whoever@sub.relayed.example", True),
        (b"whoever@other.example", True),
        (b"a@b@two.example", True),
        (b"b@two.example", False),
        (b"without-a-domain", True),
    ],
)
def test_a_domain_with_lines_has_the_recipients_that_they_name(address: bytes, exists: bool) -> None:
    assert exists_behind(LINES, address) is exists


def test_without_lines_everybody_exists() -> None:
    assert unpack_relay_recipients(b"# none\n") == RelayRecipients()
    assert exists_behind(RelayRecipients(), b"ann@relayed.example")


@pytest.mark.parametrize("line", [b"ann", b"ann@", b"@"])
def test_a_line_without_a_domain_is_an_error(line: bytes) -> None:
    with pytest.raises(LineError, match="line 2: neither user@domain nor @domain"):
        unpack_relay_recipients(b"# x\n" + line + b"\n")
