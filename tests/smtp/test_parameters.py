"""What goes with MAIL FROM, and addresses that are not ASCII: SMTPUTF8 where it is needed, and what is done without."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_remote.smtp.transaction import Transaction
from queue_smtp.path import pack_utf8_path
from queue_wire.format_error import FormatError
from support.servers.smtp.smtp_script import ready, run, transaction

UTF8 = b"220 hi\r\n250-raw.example\r\n250-8BITMIME\r\n250-PIPELINING\r\n250 SMTPUTF8\r\n"
LOCAL = "\u00fcser@b.example".encode()
DOMAIN = "user@b\u00fccher.example".encode()
TAKEN = [b"250 ok\r\n250 ok\r\n354 go\r\n", b"250 done\r\n"]


@pytest.mark.parametrize(
    ("address", "path", "utf8"),
    [
        (LOCAL, b"<%s>" % LOCAL, True),
        (DOMAIN, b"<user@xn--bcher-kva.example>", False),
        ("\u00fc x@b.example".encode(), '<"\u00fc x"@b.example>'.encode(), True),
        ("\u00fc@b\u00fccher.example".encode(), "<\u00fc@b\u00fccher.example>".encode(), True),
        ("\u00fc".encode(), "<\u00fc>".encode(), True),
    ],
)
def test_an_address_needs_smtputf8_where_its_local_part_does(address: bytes, path: bytes, utf8: bool) -> None:
    assert pack_utf8_path(address) == (path, utf8)


@pytest.mark.parametrize(
    "address", [b"\xff@b", b"\xc3\xa9\r\n@b", "\u0085@b".encode(), "a@b\u00fc>".encode(), "\u202e@b".encode()]
)
def test_what_is_no_utf8_or_hides_something_is_refused(address: bytes) -> None:
    with pytest.raises(FormatError):
        pack_utf8_path(address)


@given(st.text(max_size=20))
def test_no_path_ends_its_line(text: str) -> None:
    try:
        path, _ = pack_utf8_path(text.encode("utf-8", "surrogatepass"))
    except FormatError:
        return
    assert path[:1] + path[-1:] == b"<>"
    assert not any(byte < 32 or byte == 127 for byte in path)


def test_8_bit_mail_is_announced_to_those_who_want_to_know() -> None:
    asked = Transaction(b"f@a", [b"to@b"], 500, eight_bit=True)
    assert ready(UTF8).begin(asked).startswith(b"MAIL FROM:<f@a> BODY=8BITMIME\r\n")
    plain = b"220 hi\r\n250-raw.example\r\n250 SIZE\r\n"
    assert ready(plain).begin(Transaction(b"f@a", [b"to@b"], 500, eight_bit=True)) == b"MAIL FROM:<f@a> SIZE=500\r\n"


@pytest.mark.parametrize(("sender", "recipient"), [(LOCAL, b"to@b"), (b"f@a", LOCAL)])
def test_smtputf8_is_asked_for_where_an_address_needs_it(sender: bytes, recipient: bytes) -> None:
    asked = Transaction(sender, [recipient], 0)
    said = run(ready(UTF8), asked, *TAKEN)
    assert said.startswith(b"MAIL FROM:<%s> SMTPUTF8\r\nRCPT TO:<%s>\r\n" % (sender, recipient))
    assert asked.verdicts()[0][0] == b"K"


def test_smtputf8_is_not_asked_for_where_a_domain_can_be_written_without() -> None:
    said = ready(UTF8).begin(Transaction(DOMAIN, [DOMAIN], 0))
    assert said.startswith(b"MAIL FROM:<user@xn--bcher-kva.example>\r\nRCPT TO:<user@xn--bcher-kva.example>\r\n")


def test_smtputf8_is_asked_for_where_the_header_is_utf8_and_the_server_offers_it() -> None:
    asked = Transaction(b"f@a", [b"to@b"], 0, eight_bit=True)
    asked.header_utf8 = True
    assert ready(UTF8).begin(asked).startswith(b"MAIL FROM:<f@a> BODY=8BITMIME SMTPUTF8\r\nRCPT TO:<to@b>\r\n")
    assert ready().begin(asked).startswith(b"MAIL FROM:<f@a> BODY=8BITMIME\r\nRCPT TO:<to@b>\r\n")


def test_without_smtputf8_only_the_recipients_that_need_it_fail() -> None:
    asked = transaction(LOCAL, b"to@b", DOMAIN)
    said = run(ready(), asked, b"250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n", b"250 done\r\n")
    assert said.count(b"RCPT TO:") == 2
    assert [letter for letter, _ in asked.verdicts()] == [b"D", b"K", b"K"]
    assert b"(#5.6.7)" in asked.verdicts()[0][1]


def test_without_smtputf8_a_sender_that_needs_it_fails_for_all() -> None:
    client, asked = ready(), Transaction(LOCAL, [b"to@b", b"too@b"], 0)
    assert client.begin(asked) == b""
    assert all(letter == b"D" and b"(#5.6.7)" in text for letter, text in asked.verdicts())
    assert client.begin(transaction()).startswith(b"MAIL")


def test_without_smtputf8_nothing_is_said_where_nobody_is_left() -> None:
    client, asked = ready(), transaction(LOCAL)
    assert client.begin(asked) == b""
    assert asked.verdicts()[0][0] == b"D"
    assert client.quit() == b"QUIT\r\n"


def test_a_transaction_may_be_refused_by_one_host_and_go_to_another_that_can_do_more() -> None:
    asked = transaction(LOCAL, b"to@b")
    first = ready()
    run(first, asked, b"421 bye\r\n")
    said = run(ready(UTF8), asked, b"250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n", b"250 done\r\n")
    assert said.count(b"RCPT TO:") == 2
    assert [letter for letter, _ in asked.verdicts()] == [b"K", b"K"]
