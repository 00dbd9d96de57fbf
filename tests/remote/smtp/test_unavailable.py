"""A host that says 421, as its greeting or to MAIL, is not there: queue-remote's report is about the host."""



from queue_wire.pipes.report import HOST_SCOPE, MESSAGE_SCOPE
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.smtp.raw_server import Peer, RawServer

TEXT = b"Subject: hello\n\nA message.\n"


def test_a_greeting_of_421_is_the_hosts_trouble(home: RemoteHome) -> None:
    heard = []

    def script(peer: Peer) -> None:
        peer.say(b"421 too busy")
        heard.append(peer.hear())

    with RawServer(script) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), b"to@b.example", b"also@b.example")
    text = b"Connected to 127.0.0.1 but greeting failed.\nRemote host said: 421 too busy\n"
    assert report.scope == HOST_SCOPE
    assert report.verdicts == [(b"Z", text)] * 2
    assert heard == [b"QUIT"]


def test_a_421_to_mail_is_the_hosts_trouble_and_any_other_refusal_is_not(home: RemoteHome) -> None:
    replies = [b"421 4.3.2 closing", b"451 4.3.0 not this sender"]

    def script(peer: Peer) -> None:
        peer.greet()
        peer.hear()
        peer.say(replies.pop(0))

    with RawServer(script) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            closing, refusing = (daemon.deliver(home.message(TEXT), b"to@b.example") for _ in replies.copy())
    assert (closing.scope, refusing.scope) == (HOST_SCOPE, MESSAGE_SCOPE)
    assert [letter for letter, _ in closing.verdicts + refusing.verdicts] == [b"Z", b"Z"]
    assert b"Remote host said: 421 4.3.2 closing\n" in closing.verdicts[0][1]
