"""Every reply of queue-smtpd to 260 dialogues is compared with that of Postfix, and each difference is explained.

A dialogue is the commands that follow each other; after each one reply is read. Its code counts, its text does not.
"""

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from queue_base.home import Home
from support.inject.injectors import shared_home
from support.intake.intake_daemon import IntakeDaemon
from support.servers.postfix import Postfix
from support.smtpd.smtpd_daemon import SmtpdDaemon
from support.smtpd.smtpd_process import GivenSession

Talk = Callable[[list[str]], list[str]]

SIZE = 1_000_000
# Dialogues on one connection, with RSET between them.
TOGETHER = 6
POSTFIX = [
    "virtual_mailbox_domains = example.org",
    "smtpd_relay_restrictions = reject_unauth_destination",
    "smtpd_recipient_restrictions = reject_unauth_destination",
    "smtpd_helo_required = yes",
    "smtpd_error_sleep_time = 0",
    "smtpd_client_connection_rate_limit = 0",
    "smtpd_junk_command_limit = 1000",
    "relay_domains =",
    # Not who asks for the replies to the other dialogues.
    "smtpd_authorized_xclient_hosts = 127.0.0.2",
]


GOOD_FROM, GOOD_TO = "MAIL FROM:<a@far.example>", "RCPT TO:<bob@example.org>"
TEXT = "Subject: x\r\n\r\nhello\r\n."

# From the greeting on.
FRESH = [
    ["NOOP"], ["RSET"], ["HELP"], ["VRFY bob"], ["QUIT"], ["MAIL FROM:<a@far.example>"],
    ["RCPT TO:<bob@example.org>"], ["DATA"], ["BDAT 0 LAST"], ["EHLO"], ["HELO"], ["EHLO c.example"],
    ["HELO c.example"], ["ehlo c.example"], ["EHLO [192.0.2.1]"], ["EHLO [IPv6:2001:db8::1]"],
    ["EHLO c_d.example"], ["EHLO c.example extra"], ["HELO c d"], ["EHLO -"], ["EHLO " + "x" * 300],
    ["EHLO \u00e4.example"], ["HELO \u00e4-PC"],
    ["EHLO c.example", "EHLO c.example"], ["HELO c", "EHLO c"], ["EHLO c", "HELO c"],
    ["HELO c", GOOD_FROM, GOOD_TO, "DATA", TEXT], ["HELO c", "MAIL FROM:<a@far.example> SIZE=100"],
    ["HELO c", "MAIL FROM:<a@far.example> BODY=8BITMIME"], ["EHLO c", GOOD_FROM, "QUIT"], ["STARTTLS"],
    ["AUTH PLAIN"], ["XYZZY"], [""], [" EHLO c"], ["EHLO\tc"], ["GET / HTTP/1.0"],
    ["EHLO c", "CONNECT x:25 HTTP/1.1"], ["POST / HTTP/1.1"], ["EHLO c", GOOD_FROM, "EHLO c", GOOD_TO],
    ["EHLO c", GOOD_FROM, "HELO c", GOOD_TO],
]  # fmt: skip

SENDERS = [
    "<>", "<a@far.example>", "<A@FAR.example>", "a@far.example", "<a@far.example", "a@far.example>",
    "<<a@far.example>>", "<a>", "<@>", "<@far.example>", "<a@>", "<a@b@far.example>", "<a b@far.example>",
    '<"a b"@far.example>', '<"a\\"b"@far.example>', '<"a@b"@far.example>', '<""@far.example>',
    "<.a@far.example>", "<a.@far.example>", "<a..b@far.example>", "<a@far..example>", "<a@.far.example>",
    "<a@far.example.>", "<a@-far.example>", "<a@far_x.example>", "<a@[192.0.2.1]>", "<a@[192.0.2.256]>",
    "<a@[IPv6:2001:db8::1]>", "<a@[IPv6:2001:db8::x]>", "<a@192.0.2.1>", "<@x.example:a@far.example>",
    "<@x.example,@y.example:a@far.example>", "<@x.example:>", "<a%b@far.example>", "<b!a@far.example>",
    "<a+b=c@far.example>", "<'a'@far.example>", "<a(x)@far.example>", "<a;b@far.example>", "<a,b@far.example>",
    "<a:b@far.example>", "<\\a@far.example>", "<a@far.example >", "< a@far.example>", " <a@far.example>",
    "  <a@far.example>", "\t<a@far.example>", "<" + "x" * 64 + "@far.example>",
    "<" + "x" * 65 + "@far.example>", "<a@" + "x" * 63 + ".example>", "<a@" + "x" * 64 + ".example>",
    "<a@" + ("x" * 60 + ".") * 4 + "example>", "<a@\u00e4.example>", "<\u00e4@far.example>",
    "Ann <a@far.example>", "<a@far.example> junk", "<a@far.example>x", "",
]  # fmt: skip
PARAMETERS = [
    "SIZE=0", "SIZE=100", "SIZE=1000000", "SIZE=1000001", "SIZE=99999999999999999999999", "SIZE=", "SIZE",
    "SIZE=x", "SIZE=-1", "size=100", "BODY=7BIT", "BODY=8BITMIME", "BODY=8bitmime", "BODY=BINARYMIME", "BODY=",
    "BODY", "BODY=x", "SMTPUTF8", "SMTPUTF8=1", "AUTH=<>", "AUTH=a@far.example", "RET=FULL", "RET=HDRS",
    "ENVID=1", "FOO", "FOO=BAR", "=", "SIZE=1 SIZE=1", "SIZE=1 SIZE=2", "SIZE=1 BODY=8BITMIME", "SIZE=1  BODY=8BITMIME",
    "BODY=8BITMIME BODY=8BITMIME",
    "HOLDFOR=1", "BY=1;R", "REQUIRETLS", "MT-PRIORITY=1",
]  # fmt: skip
RECIPIENTS = [
    "<bob@example.org>", "<BOB@EXAMPLE.ORG>", "bob@example.org", "<bob@example.org", "<bob>", "<>", "",
    "<postmaster>", "<Postmaster>", "<@example.org>", "<bob@>", "<bob@far.example>", "<bob@sub.example.org>",
    "<bob@example.org.>", "<bob%far.example@example.org>", "<far.example!bob@example.org>",
    "<bob@far.example@example.org>", "<@example.org:bob@far.example>", "<@far.example:bob@example.org>",
    "<bob@[127.0.0.1]>", "<bob@[192.0.2.1]>", "<bob@127.0.0.1>", '<"bob"@example.org>',
    '<"bob@far.example"@example.org>', '<"bob%far.example"@example.org>', '<"b b"@example.org>',
    "<b b@example.org>", "<.bob@example.org>", "<bob..x@example.org>", " <bob@example.org>",
    "<bob@example.org> junk", "<bob@example.org>junk", "<b\u00f6b@example.org>",
    "<" + "x" * 65 + "@example.org>", "<bob+x@example.org>", "<|bob@example.org>", "</etc/passwd@example.org>",
    "<bob@example.org> NOTIFY=NEVER", "<bob@example.org> ORCPT=rfc822;bob@example.org",
    "<bob@example.org> FOO=1", "<\"\"@example.org>", "<bob@-example.org>", "<\"bob\"x@example.org>",
]  # fmt: skip
# Behind EHLO.
IDLE = [
    *[[f"MAIL FROM:{path}"] for path in SENDERS],
    *[[f"MAIL FROM:<a@far.example> {each}"] for each in PARAMETERS],
    *[[GOOD_FROM, f"RCPT TO:{path}"] for path in RECIPIENTS], ["MAIL"], ["MAIL FROM"], ["MAIL FROM:"],
    ["MAIL TO:<a@far.example>"], ["MAIL FROM <a@far.example>"], ["mail from:<a@far.example>"],
    ["MAIL FROM : <a@far.example>"], ["MAIL  FROM:<a@far.example>"], ["MAILFROM:<a@far.example>"],
    ["SEND FROM:<a@far.example>"], ["SOML FROM:<a@far.example>"], ["SAML FROM:<a@far.example>"],
    [GOOD_FROM, GOOD_FROM], [GOOD_FROM, "DATA"], [GOOD_TO], ["DATA"], [GOOD_FROM, "RCPT"],
    [GOOD_FROM, "RCPT TO"], [GOOD_FROM, "RCPT FROM:<bob@example.org>"],
    [GOOD_FROM, "rcpt to:<bob@example.org>"], [GOOD_FROM, "RCPT TO : <bob@example.org>"],
    [GOOD_FROM, GOOD_TO, GOOD_TO], [GOOD_FROM, GOOD_TO, GOOD_FROM], [GOOD_FROM, GOOD_TO, "DATA x"],
    [GOOD_FROM, GOOD_TO, "DATA", TEXT], [GOOD_FROM, GOOD_TO, "DATA", TEXT, "DATA"],
    [GOOD_FROM, GOOD_TO, "DATA", "."], [GOOD_FROM, GOOD_TO, "data", "no header\r\n."],
    [GOOD_FROM, GOOD_TO, "DATA", "..\r\n."], [GOOD_FROM, "RCPT TO:<bob@far.example>", "DATA"],
    [GOOD_FROM, "RCPT TO:<bob@far.example>", GOOD_TO, "DATA", TEXT], [GOOD_FROM, GOOD_TO, "RSET", "DATA"],
    [GOOD_FROM, "RSET", GOOD_TO], ["RSET x"], ["NOOP"], ["NOOP x y z"], ["HELP"], ["HELP MAIL"], ["VRFY"],
    ["VRFY bob"], ["VRFY <bob@example.org>"], ["VRFY bob@far.example"], ["EXPN list"], ["EXPN"], ["TURN"],
    ["ETRN example.org"], ["ETRN"], ["XCLIENT ADDR=192.0.2.1"], ["XCLIENT"], ["STARTTLS"], ["STARTTLS x"],
    ["AUTH"], ["AUTH PLAIN"], ["AUTH PLAIN ="], ["AUTH FOO"], ["BURL x"], ["QUIT x"], ["XYZZY"], ["MA"],
    ["MAILX"], ["\u00e4"], ["x" * 600], ["NOOP " + "x" * 500], ["NOOP " + "x" * 1100], ["NOOP\u0001"],
    [GOOD_FROM, GOOD_TO, "NOOP", "DATA", TEXT], [GOOD_FROM, GOOD_TO, "VRFY x", "DATA", TEXT],
    [GOOD_FROM, GOOD_TO, "HELP", "DATA", TEXT], [GOOD_FROM, "XYZZY", GOOD_TO, "DATA", TEXT],
    [GOOD_FROM, GOOD_TO, "MAIL", "DATA", TEXT], [GOOD_FROM, GOOD_TO, "BDAT 5 LAST\r\nhello"],
    [GOOD_FROM, GOOD_TO, "BDAT 5\r\nhello", "BDAT 0 LAST"], [GOOD_FROM, GOOD_TO, "BDAT 5\r\nhello", "DATA"],
    [GOOD_FROM, GOOD_TO, "BDAT 5\r\nhello", "RSET", "BDAT 0 LAST"],
    [GOOD_FROM, GOOD_TO, "BDAT 5\r\nhello", GOOD_TO],
    [GOOD_FROM, GOOD_TO, "BDAT 5\r\nhello", "NOOP", "BDAT 0 LAST"], [GOOD_FROM, "BDAT 5 LAST\r\nhello"],
    ["BDAT 5 LAST\r\nhello"], [GOOD_FROM, GOOD_TO, "BDAT 0 LAST"],
    [GOOD_FROM, "RCPT TO:<bob@far.example>", "BDAT 5 LAST\r\nhello"],
    [GOOD_FROM, GOOD_TO, "BDAT 1000001 LAST\r\n" + "x" * 1000001],
    [GOOD_FROM, GOOD_TO, "DATA", "x" * 900 + "\r\n."],
    [GOOD_FROM, GOOD_TO, "DATA", ("x" * 100 + "\r\n") * 10000 + "."],
    [GOOD_FROM, GOOD_TO, "DATA", "Received: x\r\n" * 101 + "\r\n."],
    [GOOD_FROM, GOOD_TO, "DATA", "Received: x\r\n" * 40 + "\r\n."],
    ["MAIL FROM:<a@\u00e4.example> SMTPUTF8", GOOD_TO, "DATA", TEXT],
    ["MAIL FROM:<a@far.example> SMTPUTF8", "RCPT TO:<b\u00f6b@example.org>", "DATA", TEXT],
    ["MAIL FROM:<a@far.example> BODY=8BITMIME", GOOD_TO, "DATA", "Subject: \u00e4\r\n\r\n\u00e4\r\n."],
]  # fmt: skip

# The codes of ours and of Postfix, the commands that have them, and why.
EXPLAINED = [
    ("501", "250", r"MAIL FROM:a@far\.example>$|MAIL FROM:<<",
     "brackets come in pairs: the path is no path of RFC 5321"),
    ("501", "250", r"(MAIL FROM|RCPT TO):<[^ @]*@[a-z.@]*>$|.*<@x\.example:>",
     "Postfix takes an empty local part or two @"),
    ("501", "250", r'.*<(""@|a\(x\)@|a:b@|\\a@)|MAIL FROM:<a@far.example >|MAIL FROM:< a',
     "Postfix takes what RFC 5321 has quoted"),
    ("250", "501", r".*@192\.0\.2\.1>",
     "a name of digits alone is not known to be an address that lacks its brackets"),
    ("550", "501", r".*@127\.0\.0\.1>", "the same, and there is no relaying to it"),
    ("553", "501", r".*@\u00e4", "RFC 6531 section 3.5: 553 for an address that needs SMTPUTF8"),
    ("553", "250", r".*\u00e4@|.*\u00f6",
     "the same; Postfix takes a local part of eight bits without SMTPUTF8"),
    ("555", "250", r".* (RET|ENVID|NOTIFY|ORCPT)=", "DSN is not offered"),
    ("501", "250", r".* SIZE=1 SIZE=2$", "a parameter may not have two values (RFC 5321 section 4.1.1.11)"),
    ("501", "552", r".* SIZE=9{23}$", "RFC 1870: at most 20 digits"),
    ("501", "555", r".* (SIZE|BODY=BINARYMIME|BODY=|BODY|BODY=x|SMTPUTF8=1)$",
     "a known parameter with a bad value is a syntax error"),
    ("550", "554", r"RCPT TO:<.*>$", "no relaying: 550 5.7.1 as qmail-smtpd's 553, Postfix has 554 5.7.1"),
    ("501", "554", r"RCPT TO:<bob@far\.example@example\.org>$", "two @: no path, and for Postfix a relay"),
    ("250", "554", r'RCPT TO:<("?bob[%@]far\.example"?|far\.example!bob)@example\.org>',
     "a name with %, ! or @ is a local one, and no route"),
    ("550", "554", r"RCPT TO:<bob>$", "a name without a domain is not completed for strangers"),
    ("214", "500", r"HELP", "Postfix has no HELP"),
    ("252", "554", r"VRFY", "VRFY says nothing to anybody; Postfix asks its rules for relaying"),
    ("503", "502", r"STARTTLS", "EHLO first, whatever is offered"),
    ("521", "221", r"GET|POST|CONNECT", "a web client is sent away; Postfix says 221"),
    ("500", "221", r"MAILFROM:|\u00e4", "Postfix sends away what is no word of letters"),
    ("502", "500", r"(SEND|SOML|SAML|EXPN|TURN)\b|ETRN$",
     "RFC 5321 section 4.2.4: known, and not implemented"),
    ("502", "459", r"ETRN ", "ETRN is not implemented"),
    ("550", "501", r"XCLIENT$", "the right to it is looked at first"),
    ("502", "503", r"AUTH", "AUTH that is not offered is a command that is not implemented"),
    ("501", "221", r"QUIT x", "QUIT has no argument (RFC 5321 section 4.1.1.10)"),
]  # fmt: skip


def read_code(connection: socket.socket) -> str:
    """Return the code of one reply, or `end`."""
    line = b""
    while True:
        byte = connection.recv(1)
        if not byte:
            return "end"
        line += byte
        if byte == b"\n":
            if line[3:4] != b"-":
                return line[:3].decode()
            line = b""


def talk(connection: socket.socket, dialogue: list[str]) -> list[str]:
    """Return the codes of the replies, up to the one that ends the session."""
    found = []
    for each in dialogue:
        whole = each.startswith("BDAT") and "\r\n" in each  # A chunk has no line end of its own.
        connection.sendall(each.encode() + (b"" if whole else b"\r\n"))
        found.append(read_code(connection))
        if found[-1] in ("end", "221", "421", "521"):
            break
    return found


def replies(connect: Callable[[], socket.socket]) -> list[list[str]]:
    """Return the codes of each dialogue."""
    found = []
    for each in FRESH:
        with connect() as connection:
            assert read_code(connection) == "220"
            found.append(talk(connection, each))
    left = IDLE[::-1]
    while left:
        with connect() as connection:
            assert [read_code(connection), *talk(connection, ["EHLO c.example"])] == ["220", "250"]
            for each in (left.pop() for _ in range(min(TOGETHER, len(left)))):
                found.append(talk(connection, each))
                if found[-1][-1] in ("end", "221", "421", "521"):
                    break
                assert talk(connection, ["RSET"]) == ["250"], each
    return found


@pytest.fixture(scope="module")
def postfix() -> Iterator[Postfix]:
    with Postfix(main=POSTFIX, size_limit=SIZE) as server:
        yield server


def from_postfix(postfix: Postfix) -> list[list[str]]:
    return replies(lambda: socket.create_connection(("127.0.0.1", postfix.port), timeout=60))


@contextmanager
def home_for_replies() -> Iterator[Home]:
    with shared_home(0) as home:
        for name, text in (("locals", "example.org"), ("databytes", str(SIZE)), ("checkrcpt", "0")):
            Path(home.control, name).write_text(f"{text}\n")
        yield home


def from_us() -> list[list[str]]:
    sessions: list[GivenSession] = []
    with home_for_replies() as home, IntakeDaemon(home):

        def connect() -> socket.socket:
            sessions.append(GivenSession(home, variables={"TCPREMOTEIP": "198.51.100.7"}))
            return sessions[-1].client

        try:
            return replies(connect)
        finally:
            for each in sessions:
                each.__exit__(None, None, None)


def test_each_difference_from_the_replies_of_postfix_is_explained(postfix: Postfix) -> None:
    dialogues = FRESH + IDLE
    assert len(dialogues) > 250
    unexplained, used = [], set()
    for dialogue, ours, theirs in zip(dialogues, from_us(), from_postfix(postfix), strict=True):
        for command, one, other in zip(dialogue, ours, theirs, strict=False):
            if one != other:
                why = [each for each in EXPLAINED if each[:2] == (one, other) and re.match(each[2], command)]
                if not why:
                    unexplained.append((command[:80], one, other))
                used |= set(why)
    assert unexplained == []
    assert [each for each in EXPLAINED if each not in used] == []


# XCLIENT of a host that may use it.

XCLIENT = [
    *["ADDR=198.51.100.7", "ADDR=IPV6:2001:db8::7", "ADDR=ipv6:2001:DB8::7", "ADDR=[198.51.100.7]", "ADDR=x", "ADDR="],
    *["ADDR=2001:db8::7", "ADDR=198.51.100.256", "addr=198.51.100.7", "ADDR", "", "FOO=1", "SOURCE=LOCAL"],
    *[f"{name}=[UNAVAILABLE]" for name in ("ADDR", "NAME", "PORT", "HELO")],
    *[f"{name}=[TEMPUNAVAIL]" for name in ("ADDR", "NAME")],
    *["NAME=c.example", "NAME=c+2Eexample", "NAME=c+2", "NAME=a_b", "NAME=-x", "NAME=", "NAME=" + "x" * 300],
    *["PORT=4000", "PORT=0", "PORT=x", "PORT=65536", "PROTO=SMTP", "PROTO=ESMTP", "PROTO=smtp", "PROTO=X"],
    *["HELO=c", "HELO=", "HELO=a+20b", "DESTADDR=192.0.2.1", "DESTADDR=x"],
    *["DESTPORT=25", "DESTPORT=x", "ADDR=198.51.100.7  NAME=c", "ADDR=198.51.100.7 ADDR=198.51.100.8"],
    "ADDR=198.51.100.7 NAME=c.example PORT=1 PROTO=ESMTP HELO=c DESTADDR=192.0.2.1 DESTPORT=25",
]
PROXIED = [
    *[["EHLO c", f"XCLIENT {each}"] for each in XCLIENT], ["XCLIENT ADDR=198.51.100.7"],
    ["XCLIENT ADDR=198.51.100.7", GOOD_FROM], ["XCLIENT ADDR=198.51.100.7", "EHLO c", GOOD_FROM, GOOD_TO, "QUIT"],
    ["EHLO c", GOOD_FROM, "XCLIENT ADDR=198.51.100.7"], ["EHLO c", "XCLIENT NAME=c", "EHLO c", "XCLIENT NAME=d"],
    ["EHLO c", "XCLIENT ADDR=198.51.100.7", "EHLO c", "XCLIENT ADDR=127.0.0.2", GOOD_FROM],
    ["EHLO c", "XCLIENT ADDR=198.51.100.7 HELO=x", GOOD_FROM],
]  # fmt: skip
EXPLAINED_XCLIENT = [
    ("220", "501", r".*=2001:", "the prefix may be left out"),
    ("220", "501", r".*ADDR=\[TEMPUNAVAIL\]|.*NAME=-x$", "it is not known, or for people"),
    ("501", "220", r".*PORT=65536|.*a\+20b|.* ADDR=.* ADDR=", "a bad value, or two of them"),
    ("503", "250", "MAIL", "EHLO first, also if HELO was given"),
]


def test_the_same_is_so_for_xclient(postfix: Postfix) -> None:
    def codes(port: int) -> list[list[str]]:
        found = []
        for each in PROXIED:
            with socket.create_connection(("127.0.0.1", port), 60, ("127.0.0.2", 0)) as connection:
                found.append([read_code(connection), *talk(connection, each)])
        return found

    theirs = codes(postfix.port)
    with home_for_replies() as home:
        Path(home.control, "xclients").write_text("127.0.0.2\n")
        with SmtpdDaemon(home) as daemon:
            ours = codes(daemon.ports[0])
    unexplained, used = [], set()
    for dialogue, one, other in zip(PROXIED, ours, theirs, strict=True):
        for command, mine, its in zip(["greeting", *dialogue], one, other, strict=False):
            if mine != its:
                why = [each for each in EXPLAINED_XCLIENT if each[:2] == (mine, its) and re.match(each[2], command)]
                if not why:
                    unexplained.append((dialogue, command, mine, its))
                used |= set(why)
    assert unexplained == []
    assert [each for each in EXPLAINED_XCLIENT if each not in used] == []
