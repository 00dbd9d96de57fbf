"""Addresses of SRS: what is made of a sender, and what a bounce to it goes back to."""

import base64
import hmac
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_local.srs.srs_address import DAYS_MAX, BadSrs, is_ours, restore_sender, rewrite_sender
from support.tools import need_file

DAY = 86400
NOW = 20_000 * DAY
SECRET = b"secret"
US = b"us.example"
LOCAL = st.binary(min_size=1, max_size=40).filter(lambda text: not {0, 64} & set(text))
HOST = st.from_regex(rb"[a-z0-9-]{1,10}(\.[a-z0-9-]{1,10}){0,3}", fullmatch=True)


def local(address: bytes) -> bytes:
    """Return the local part of an address of ours."""
    part, at, host = address.rpartition(b"@")
    assert (at, host) == (b"@", US)
    assert is_ours(US, address)
    return part


@given(LOCAL, HOST, st.integers(0, 2000 * DAY), st.integers(0, DAYS_MAX * DAY - 1))
def test_a_bounce_comes_back_to_the_sender(name: bytes, host: bytes, now: int, later: int) -> None:
    sender = b"%s@%s" % (name, host)
    made = rewrite_sender(sender, US, SECRET, now)
    found = restore_sender(local(made), [b"another", SECRET], now + later)
    if made.startswith(b"SRS0"):
        assert found == sender
    else:
        # What follows `SRS0` goes back to the host that made it, without regard to the case of these four letters.
        assert found.partition(b"@")[0][:4] == b"SRS0"


@given(LOCAL, HOST, HOST)
def test_a_sender_that_was_rewritten_before_goes_back_to_the_host_that_did_it(
    name: bytes, host: bytes, first: bytes
) -> None:
    theirs = rewrite_sender(b"%s@%s" % (b"x" + name, host), first, b"theirs", NOW)
    ours = rewrite_sender(theirs, US, SECRET, NOW)
    assert ours.startswith(b"SRS1=")
    assert restore_sender(local(ours), [SECRET], NOW) == theirs
    # A third host points to the first one, too, and the address does not grow.
    third = rewrite_sender(ours, b"third.example", b"thirds", NOW)
    assert third.startswith(b"SRS1=")
    assert restore_sender(third.rpartition(b"@")[0], [b"thirds"], NOW) == theirs


def test_the_form_is_that_of_the_specification() -> None:
    made = rewrite_sender(b"joe@example.net", US, SECRET, NOW)
    tag, given_hash, day, host, user = local(made).split(b"=")
    assert (tag, len(given_hash), day, host, user) == (b"SRS0", 4, b"RA", b"example.net", b"joe")


@pytest.mark.parametrize("change", [bytes.lower, bytes.upper])
def test_a_host_on_the_way_may_change_the_case(change: type) -> None:
    made = local(rewrite_sender(b"Joe@Example.net", US, SECRET, NOW))
    assert restore_sender(change(made), [SECRET], NOW).lower() == b"joe@example.net"


def test_an_address_expires() -> None:
    made = local(rewrite_sender(b"joe@example.net", US, SECRET, NOW))
    assert restore_sender(made, [SECRET], NOW + DAYS_MAX * DAY) == b"joe@example.net"
    assert restore_sender(made, [SECRET], NOW - DAY) == b"joe@example.net"
    for when in (NOW + (DAYS_MAX + 1) * DAY, NOW - 2 * DAY, NOW + 500 * DAY):
        # A day that is to come is taken for the last one with its letters.
        with pytest.raises(BadSrs, match="hash" if when < NOW else "expired"):
            restore_sender(made, [SECRET], when)


def test_a_secret_that_is_gone_is_not_accepted() -> None:
    made = local(rewrite_sender(b"joe@example.net", US, SECRET, NOW))
    with pytest.raises(BadSrs, match="hash"):
        restore_sender(made, [b"new", b"newer"], NOW)


@given(LOCAL)
def test_nobody_else_can_make_an_address(name: bytes) -> None:
    # The chance that a guess of 24 bits is right is too small to matter.
    for forged in (b"SRS0=" + name, b"SRS0=AAAA=RA=example.net=" + name, b"SRS1=AAAA=example.net==" + name, name):
        with pytest.raises(BadSrs):
            restore_sender(forged, [SECRET], NOW)


@pytest.mark.parametrize(
    "changed",
    [
        # The border of host and user is elsewhere.
        b"SRS0=%s=%s=victim.exampl=ejoe", b"SRS0=%s=%s=v=ictim.examplejoe",
        # It is of the other kind, and good for ever.
        b"SRS1=%s=%svictim.example=joe", b"SRS1=%s=%svictim=.examplejoe",
    ],
)  # fmt: skip
def test_of_a_good_address_no_other_can_be_made(changed: bytes) -> None:
    _, made, day, _, _ = local(rewrite_sender(b"joe@victim.example", US, SECRET, NOW)).split(b"=")
    with pytest.raises(BadSrs, match="hash"):
        restore_sender(changed % (made, day), [SECRET], NOW)
    again = local(rewrite_sender(b"SRS0=abcd=RA=a.example=b@ravictim.example", US, SECRET, NOW)).split(b"=")[1]
    with pytest.raises(BadSrs, match="hash"):
        restore_sender(b"SRS0=%s=RA=victim.example==abcd=RA=a.example=b" % again, [SECRET], NOW)


def test_the_letters_of_a_day_are_good_for_that_day_alone() -> None:
    made = local(rewrite_sender(b"joe@example.net", US, SECRET, NOW))
    with pytest.raises(BadSrs, match="hash"):
        restore_sender(made, [SECRET], NOW + 1024 * DAY)


@pytest.mark.parametrize(
    ("made", "sender"),
    [
        (b"SRS0=IXcL=RA=example.net=joe", b"joe@example.net"),
        (b"SRS1=Jthr=first.example==ICdT=RA=example.net=joe", b"SRS0=ICdT=RA=example.net=joe@first.example"),
    ],
)
def test_addresses_of_the_form_before_are_good_for_their_days_whenever_the_upgrade_was(
    made: bytes, sender: bytes
) -> None:
    for day in (0, DAYS_MAX - 1):
        assert restore_sender(made, [b"new", SECRET], NOW + day * DAY) == sender
    with pytest.raises(BadSrs, match=r"hash|expired"):
        restore_sender(made, [SECRET], NOW + (DAYS_MAX + 2) * DAY)


def test_an_address_of_the_form_before_without_days_is_not_good() -> None:
    for rest in (b"=abcd=RA=a.example", b"=abcd=??=a.example=b", b"=x"):
        hashed = base64.b64encode(hmac.digest(SECRET, (b"first.example" + rest).lower(), "sha1"))[:4]
        with pytest.raises(BadSrs, match="hash"):
            restore_sender(b"SRS1=%s=first.example=%s" % (hashed, rest), [SECRET], NOW)


@pytest.mark.parametrize("sender", [b"nobody", b"joe@a=b.example", b"joe@", b"@example.net", b"joe@a b"])
def test_a_sender_that_cannot_be_rewritten_stays(sender: bytes) -> None:
    assert rewrite_sender(sender, US, SECRET, NOW) == sender


@pytest.mark.parametrize(
    "sender", [b"joe@example.net", b"Joe+x=y@Sub.Example.net", b"SRS0=abcd=DAY=a.example=b@c.example"]
)
def test_what_perls_mail_srs_has_made_is_accepted(sender: bytes) -> None:
    need_file("/usr/share/perl5/Mail/SRS.pm")
    perl = shutil.which("perl")
    assert perl is not None
    script = (
        "use Mail::SRS; my $srs = new Mail::SRS(Secret => 'secret', MaxAge => 21, HashLength => 4, HashMin => 4);"
        "print $srs->forward($ARGV[0], 'us.example'), qq(\\n);"
    )
    now = float(subprocess.run(["date", "+%s"], capture_output=True, check=True, timeout=60).stdout)
    sender = sender.replace(b"DAY", local(rewrite_sender(b"x@y", US, SECRET, now)).split(b"=")[2])
    done = subprocess.run([perl, "-e", script, sender], capture_output=True, check=True, timeout=60)
    (theirs,) = done.stdout.splitlines()
    assert restore_sender(local(theirs), [SECRET], now).lower() == sender.lower()
    # The form is the same, but for the hash.
    ours = rewrite_sender(sender, US, SECRET, now)
    assert [part for place, part in enumerate(ours.split(b"=")) if place != 1] == [
        part for place, part in enumerate(theirs.split(b"=")) if place != 1
    ]
