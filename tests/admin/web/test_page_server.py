"""The HTTP server of queuectl web and metrics: strange requests, slow clients, many clients, and names."""

import errno
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from queue_admin.web import page_server
from queue_admin.web.page_server import HTML, Page, PageServer, names_us, take_address
from queue_base.errors import Usage


def answer(path: str, accept: str) -> Page:
    if path == "/broken":
        raise ValueError("a bug")
    return Page(200, HTML, f"you asked for {path}".encode())


@pytest.fixture
def server() -> Iterator[PageServer]:
    made = PageServer("test", ("127.0.0.1", 0), answer, ["Mail.Example"])
    with serving(made):
        yield made


@contextmanager
def serving(server: PageServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield
    finally:
        server.stop()
        thread.join()


def connect(server: PageServer) -> socket.socket:
    return socket.create_connection(server.address, timeout=60)


def ask(server: PageServer, request: bytes) -> tuple[str, dict[str, str], bytes]:
    """Return the status line, the headers and the body of the answer to some bytes."""
    with connect(server) as client:
        client.sendall(request)
        data = b""
        while piece := client.recv(65536):
            data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    status, *fields = head.decode().split("\r\n")
    return status, {name.lower(): value for name, _, value in (field.partition(": ") for field in fields)}, body


def test_a_page_comes_with_its_policy_and_without_a_version(server: PageServer) -> None:
    status, headers, body = ask(server, b"GET /x?y=1 HTTP/1.1\r\nHost: localhost:8080\r\n\r\n")
    assert (status.split()[1], body) == ("200", b"you asked for /x?y=1")
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers
    status, headers, body = ask(server, b"HEAD /x HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (status.split()[1], body, headers["content-length"]) == ("200", b"", str(len("you asked for /x")))


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", "405"),
        (b"DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", "421"),
        (b"GET / HTTP/1.1\r\n\r\n", "421"),
        (b"GET / HTTP/1.1\r\nHost: mail.example:80\r\n\r\n", "200"),
        (b"GET /broken HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "500"),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", "414"),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", "431"),
        (b"<script>alert(1)</script>\r\n\r\n", "400"),
    ],
)
def test_other_requests_are_refused(server: PageServer, request_bytes: bytes, status: str) -> None:
    line, headers, body = ask(server, request_bytes)
    assert line.split()[1] == status
    assert b"<script" not in body
    assert ("allow" in headers) == (status == "405")


def test_a_client_that_says_nothing_is_cut_off(server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "REQUEST_SECONDS", 0.2)
    with connect(server) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        assert client.recv(100) == b""


def test_silent_clients_keep_nobody_away_and_the_oldest_makes_room(
    server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_server, "WAITING_MAX", 5)
    with ExitStack() as stack:
        silent = [stack.enter_context(connect(server)) for _ in range(2 * page_server.THREADS_MAX)]
        for each in silent[::2]:
            each.sendall(b"GET / HTTP/1.1\r\n")
        status, _, body = ask(server, b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (status.split()[1], body) == ("200", b"you asked for /x")
        assert silent[0].recv(1) == b""
        silent[-2].sendall(b"Host: localhost\r\n\r\n")
        assert silent[-2].recv(12).endswith(b"200")


def test_a_request_may_come_byte_by_byte(server: PageServer) -> None:
    with connect(server) as client:
        for byte in b"GET /x HTTP/1.1\nHost: localhost\n\n":
            client.sendall(bytes([byte]))
        assert client.recv(12).endswith(b"200")


def test_a_client_too_many_is_turned_away_and_the_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "THREADS_MAX", 1)
    begun, may_end = threading.Event(), threading.Event()

    def answer_later(path: str, accept: str) -> Page:
        begun.set()
        may_end.wait(60)
        return answer(path, accept)

    few = PageServer("test", ("127.0.0.1", 0), answer_later, None)
    with serving(few), connect(few) as first:
        first.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert begun.wait(60)
        status, _, _ = ask(few, b"GET / HTTP/1.1\r\n\r\n")
        may_end.set()
        assert status.split()[1] == "503"
        assert first.recv(12).endswith(b"200")


def test_a_thread_that_cannot_be_started_costs_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "THREADS_MAX", 1)
    made = PageServer("test", ("127.0.0.1", 0), answer, None)
    with serving(made):
        start = threading.Thread.start

        def fail(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        for _ in range(2):
            with connect(made) as client:
                monkeypatch.setattr(threading.Thread, "start", fail)
                client.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert client.recv(1) == b""
        monkeypatch.setattr(threading.Thread, "start", start)
        assert ask(made, b"GET / HTTP/1.1\r\n\r\n")[0].split()[1] == "200"


def test_without_descriptors_the_oldest_silent_client_goes(
    server: PageServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(page_server, "REST", 0.001)
    with connect(server) as silent:
        silent.sendall(b"GET / HTTP/1.1\r\n")
        ask(server, b"\r\n\r\n")  # Once this is answered, the first one has been accepted.
        trouble = [OSError(errno.EMFILE, os.strerror(errno.EMFILE))]
        listener = server._listener

        class Full:
            """A listener that has no descriptor for one client."""

            def accept(self) -> tuple[socket.socket, object]:
                if trouble:
                    raise trouble.pop()
                return listener.accept()

        monkeypatch.setattr(server, "_listener", Full())
        assert ask(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")[0].split()[1] == "200"
        assert silent.recv(1) == b""
    assert "unable to accept a client" in capfd.readouterr().err


def test_only_localhost_addresses_and_given_names_are_ours() -> None:
    for host in ("localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]:8080", "[::1]", "10.1.2.3", "a.example"):
        assert names_us(host, {"a.example"}), host
    for host in ("", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "a.example:x", "[::1"):
        assert not names_us(host, {"a.example"}) or host == "[::1", host


def test_an_address_to_listen_on_is_an_address_and_a_port() -> None:
    assert take_address("127.0.0.1:8080") == ("127.0.0.1", 8080)
    assert take_address("[::]:0") == ("::", 0)
    for text in ("8080", "localhost:80", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", ":80", ""):
        with pytest.raises(Usage):
            take_address(text)
