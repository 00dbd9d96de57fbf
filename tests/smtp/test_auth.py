"""AUTH mechanisms, without a connection: what each says, which one is chosen, and that no challenge breaks it."""

import pytest
import scramp
from hypothesis import given, settings
from hypothesis import strategies as st

from queue_smtp.auth import ROUNDS_MAX, Credentials, Mechanism, Scram, choose
from queue_wire.format_error import FormatError

LOGIN = Credentials(b"ann", b"se:cret", False)
ALL = b"LOGIN PLAIN CRAM-MD5 SCRAM-SHA-1 SCRAM-SHA-256"


def chosen(offered: bytes, credentials: Credentials = LOGIN, secure: bool = True) -> Mechanism:
    mechanism = choose(offered, credentials, secure)
    assert mechanism is not None
    return mechanism


def scram_server(name: str = "SCRAM-SHA-256", password: str = "se:cret") -> scramp.core.ScramServer:
    mechanism = scramp.ScramMechanism(name)
    return mechanism.make_server(lambda user: mechanism.make_auth_info(password, iteration_count=4096))


def test_the_best_mechanism_offered_is_chosen() -> None:
    order = [b"SCRAM-SHA-256", b"SCRAM-SHA-1", b"CRAM-MD5", b"PLAIN", b"LOGIN"]
    for index, name in enumerate(order):
        assert chosen(b" ".join(reversed(order[index:]))).name == name
        assert chosen(name.lower()).name == name


def test_a_password_goes_in_clear_only_where_that_is_allowed() -> None:
    assert choose(b"PLAIN LOGIN", LOGIN, False) is None
    assert chosen(b"PLAIN LOGIN", LOGIN._replace(clear=True), False).name == b"PLAIN"
    assert [chosen(name, LOGIN, False).name for name in (b"CRAM-MD5", b"SCRAM-SHA-1")] == [b"CRAM-MD5", b"SCRAM-SHA-1"]


def test_nothing_is_chosen_where_nothing_is_known() -> None:
    assert choose(b"", LOGIN, True) is None
    assert choose(b"GSSAPI SCRAM-SHA-256-PLUS XOAUTH2", LOGIN, True) is None


def test_credentials_that_scram_cannot_carry_go_by_another_mechanism() -> None:
    for password in (b"\xff", b"a\x07b"):
        assert chosen(ALL, LOGIN._replace(password=password)).name == b"CRAM-MD5"


def test_plain_says_it_all_at_once_or_when_asked_again() -> None:
    for asked in (False, True):
        plain = chosen(b"PLAIN")
        assert plain.initial() == b"\0ann\0se:cret"
        if asked:
            assert plain.answer(b"") == b"\0ann\0se:cret"
        plain.finish()


def test_login_says_user_then_password_whatever_is_asked() -> None:
    login = chosen(b"LOGIN")
    assert login.initial() is None
    assert [login.answer(b"Who?"), login.answer(b"")] == [b"ann", b"se:cret"]
    with pytest.raises(FormatError):
        login.answer(b"Password:")


def test_cram_md5_is_that_of_the_rfc() -> None:
    cram = chosen(b"CRAM-MD5", Credentials(b"tim", b"tanstaaftanstaaf", False))
    answer = cram.answer(b"<1896.697170952@postoffice.reston.mci.net>")
    assert answer == b"tim b913a602c7eda7a495b4e6e7334d3890"
    with pytest.raises(FormatError):
        cram.answer(b"<again>")


def test_cram_md5_wants_a_challenge() -> None:
    with pytest.raises(FormatError):
        chosen(b"CRAM-MD5").answer(b"")
    with pytest.raises(FormatError):
        chosen(b"CRAM-MD5").finish()


@pytest.mark.parametrize("name", ["SCRAM-SHA-256", "SCRAM-SHA-1"])
def test_scram_convinces_a_server_and_is_convinced(name: str) -> None:
    server, client = scram_server(name), chosen(name.encode())
    initial = client.initial()
    assert initial is not None
    assert initial.startswith(b"n,,n=ann,r=")
    server.set_client_first(initial.decode())
    server.set_client_final(client.answer(server.get_server_first().encode()).decode())
    with pytest.raises(FormatError, match="before it had proved"):
        client.finish()


def test_scram_believes_a_right_signature_only() -> None:
    for right in (True, False):
        server, client = scram_server(), chosen(ALL)
        server.set_client_first((client.initial() or b"").decode())
        server.set_client_final(client.answer(server.get_server_first().encode()).decode())
        if right:
            assert client.answer(server.get_server_final().encode()) == b""
            client.finish()
        else:
            with pytest.raises(FormatError, match="signature"):
                client.answer(b"v=" + b"A" * 43 + b"=")


def test_scram_does_not_compute_for_hours() -> None:
    client = chosen(ALL)
    nonce = (client.initial() or b"").rpartition(b"r=")[2]
    with pytest.raises(FormatError, match="rounds"):
        client.answer(b"r=%sx,s=%s,i=%d" % (nonce, b"QUJD" * 6, ROUNDS_MAX + 1))


def test_credentials_do_not_show_their_password() -> None:
    assert "cret" not in repr(LOGIN)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([b"SCRAM-SHA-256", b"SCRAM-SHA-1", b"CRAM-MD5", b"PLAIN", b"LOGIN"]),
    st.lists(
        st.one_of(
            st.binary(max_size=60),
            st.text(max_size=40).map(str.encode),
            st.builds(b"r=%s,s=%s,i=%s".__mod__, st.tuples(st.binary(), st.binary(), st.binary())),
            st.sampled_from([b"e=other-error", b"v=", b"v=AAAA", b"r=,s=,i=", b"m=x,r=a,s=QUJD,i=4096"]),
        ),
        max_size=4,
    ),
    st.booleans(),
)
def test_no_challenge_raises_anything_but_a_format_error(name: bytes, challenges: list[bytes], own: bool) -> None:
    mechanism = chosen(name)
    nonce = (mechanism.initial() or b"").rpartition(b"r=")[2]
    try:
        for challenge in challenges:
            if own and isinstance(mechanism, Scram):
                challenge = challenge.replace(b"r=", b"r=" + nonce)
            mechanism.answer(challenge)
        mechanism.finish()
    except FormatError:
        pass
