"""queuectl on mail that is stored for on-demand domains, while the suite does not run: what it shows, marks and orders.

The queue has a message of its own. `one` is stored for a and b, `two` for c, and the first domain also has `three`.
"""

import json
import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from queue_admin.checks.stored_records import check_stored
from queue_admin.main import main
from queue_admin.messages import description
from queue_admin.messages.admin_client import RUN_WAIT
from queue_ondemand.domain_store import DomainStore
from queue_wire.admin.ondemand_socket import SOCKET
from queue_wire.files.cluster import StoredRecipient, pack_cluster_header, pack_stored
from queue_wire.files.stored_order import StoredOrder
from queue_wire.ids import pack_long_id
from support.processes.suite import program
from support.queues.damage import BIRTH, KnownQueue
from support.queues.home import make_several
from support.queues.stored_mail import store

pytestmark = pytest.mark.usefixtures("usual_umask")
NET, COM = b"example.net", b"example.com"


class Site:
    """The queue, and its stored messages by name."""

    def __init__(self, path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.queue = KnownQueue(path, fill=False)
        self.home = self.queue.home
        own = self.queue.classified("own", remote=[(b"e@example.net", False)])
        self.own = pack_long_id(own, BIRTH // 1000)
        both = ("ann@example.net", "Bob@Example.Net")
        self.stored: dict[str, StoredRecipient] = {
            "one": store(self.home, "one", *both, sender="joe@example.org"),
            "two": store(self.home, "two", "cid@example.com", sender="joe@example.org", domain="example.com"),
            "three": store(self.home, "three", "dan@example.net", birth=1_600_000_000_000_000),
        }
        self._capfd = capfd

    def id(self, name: str) -> str:
        return self.stored[name].long_id

    def run(self, *words: str, code: int = 0) -> list[str]:
        """Return the lines on stdout of a command."""
        done = self._main(*words)
        self.err = self._capfd.readouterr()
        assert done == code, self.err.err
        return self.err.out.splitlines()

    def _main(self, *words: str) -> int:
        try:
            return main(["queuectl", "--home", self.home.path, *words])
        except SystemExit as ended:
            return int(ended.code or 0)

    def names(self, *words: str, code: int = 0) -> list[str]:
        """Return the first words of the lines of a command, as the names of messages."""
        by_id = {each.long_id: name for name, each in self.stored.items()} | {self.own: "own"}
        return [by_id[line.split()[0]] for line in self.run(*words, code=code)]

    def orders(self, domain: bytes) -> list[StoredOrder]:
        files = DomainStore(self.home.queue)
        found = []
        while (order := files.first_order(domain, lambda given: 0.0)).order is not None:
            found.append(order.order)
            os.unlink(f"{self.home.queue}/ondemand/{domain.decode()}/order/{order.name}")
        return found


@pytest.fixture
def site(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Site:
    return Site(tmp_path / "home", capfd)


def test_the_domains_are_counted_and_an_id_is_refused_if_it_is_none(site: Site) -> None:
    lines = site.run("stored")
    assert [line.partition(", ")[0] for line in lines] == [
        "example.com: 1 recipient of 1 message",
        "example.net: 3 recipients of 2 messages",
    ]
    assert len(site.run("stored", "Example.Net.")) == 3
    assert site.run("stored", "example.net", site.id("two"), code=1) == []
    number = site.id("one").partition("-")[0]
    for name, code in (("x", 100), (number, 100), ("457", 1)):
        assert site.run("stored", "example.net", name, code=code) == []
    for command in ("list", "hold"):
        assert site.run(command, number, code=100) == []
        assert f"name its long id (it is {site.id('one')} now)" in site.err.err
    assert site.run("stored", "b\u00fcro.example", code=1) == [], "a name in Unicode is one"


def test_a_list_of_all_says_how_many_are_stored_and_has_them_if_asked(site: Site) -> None:
    assert site.names("list") == ["own"]
    assert site.err.err == "3 messages are stored for on-demand domains; queuectl list --stored\n"
    assert site.names("list", "--stored") == ["two", "one", "three"]
    assert site.names("list", "--state", "stored", "--limit", "1") == ["two"]
    assert site.names("list", "--stored", "--sort", "age") == ["three", "two", "one"]
    line = site.run("list", "--sender", "JOE@example.org", "--domain", "example.net")
    assert line == [line[0]] and line[0].split()[0] == site.id("one")
    assert line[0].endswith(" <joe@example.org> to ann@example.net and 1 more, for example.net")


def test_show_does_not_wait_long_for_a_queue_ondemand_that_hangs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(description, "QUERY_WAIT", 0.05)
    Path(site.home.queue, SOCKET).parent.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{site.home.queue}/{SOCKET}")
        listener.listen()
        begun = time.monotonic()
        shown = "\n".join(site.run("show", site.id("one")))
        assert time.monotonic() - begun < RUN_WAIT / 2
    assert "; queue-ondemand does not run, or does not answer\n" in shown


def test_options_choose_among_all_that_there_is(site: Site) -> None:
    assert site.names("list", "--domain", "example.net") == ["own", "one", "three"]
    assert site.names("list", "--recipient", "bob@example.net") == ["one"]
    assert site.names("list", "--stored", "--older-than", "3000d", code=1) == []
    assert site.names("list", "--stored", "--subject", "THREE") == ["three"]
    assert site.names("list", "--state", "classified") == ["own"]
    assert site.names("list", site.id("two"), site.own) == ["own", "two"]
    [found] = map(json.loads, site.run("list", site.id("one"), "--format", "json"))
    assert (found["state"], found["stored"], found["remote"]) == ("stored", "example.net", {"done": 0, "left": 2})
    assert [each["address"] for each in found["recipients"]] == ["ann@example.net", "Bob@Example.Net"]
    site.run("list", "1-1", code=1)


def test_show_says_for_which_domain_it_is_stored_and_what_it_waits_for(site: Site) -> None:
    shown = "\n".join(site.run("show", site.id("one")))
    assert f"message: {site.id('one')}\nstate: stored\n" in shown
    assert "\nstored for example.net: since 20" in shown
    assert "; queue-ondemand does not run, or does not answer\n  pending <ann@example.net>\n" in shown
    assert shown.endswith("header:\n  Subject: one")
    assert site.run("show", "--raw", site.id("one")) == ["Subject: one", "", "body"]
    found = json.loads(site.run("show", "--format", "json", str(site.stored["two"].message))[0])
    assert found["stored"] == ["example.com"] and found["id"] == site.id("two")
    site.run("show", "1-1", code=1)


def test_one_that_is_also_in_the_queue_is_shown_with_both(site: Site) -> None:
    number = int(site.own.partition("-")[0])
    kept = site.queue.layout.mess(number)
    record = store(site.home, "both", "x@example.net", birth=BIRTH // 1000)
    os.rename(
        f"{site.home.queue}/ondemand/example.net/mess/3.{record.long_id}",
        f"{site.home.queue}/ondemand/example.net/mess/3.{site.own}",
    )
    cluster = Path(site.home.queue, "ondemand", "example.net", "3.cluster")
    cluster.unlink()
    cluster.write_bytes(pack_cluster_header(5) + pack_stored(record._replace(message=number), 5))
    assert os.path.exists(kept)
    shown = "\n".join(site.run("show", site.own))
    assert "state: classified" in shown and "  pending <e@example.net>" in shown
    assert "stored for example.net" in shown and "  pending <x@example.net>" in shown


def test_a_message_is_put_on_hold_and_released(site: Site) -> None:
    assert site.run("hold", site.id("one"), site.own, "--reason", "ask Jo") == [
        "held 1 message, and 1 stored message of example.net"
    ]
    assert DomainStore(site.home.queue).held(NET) == {site.id("one")}
    assert site.names("list", "--held") == ["own", "one"]
    owner = os.stat(site.home.queue)
    assert list(check_stored(site.home.queue, (owner.st_uid, owner.st_gid))) == []
    assert "; held: ask Jo" in "\n".join(site.run("show", site.id("one")))
    assert site.run("list", "--stored", "--held")[0].endswith("held: ask Jo")
    site.run("list", "--stored", "--reason", "Someone", code=1)
    released = ["released 1 stored message of example.net"]
    assert site.run("release", "--state", "stored", "--reason", "JO") == released
    assert DomainStore(site.home.queue).held(NET) == frozenset()


def test_a_stored_message_on_hold_keeps_its_reason_and_is_not_requeued(site: Site) -> None:
    site.run("hold", site.id("one"), "--reason", "ask Jo")
    assert site.run("hold", site.id("one"), "--reason", "new") == ["held 0 messages"]
    assert site.err.err == "1 stored message on hold already, with the reason as it was\n"
    assert site.run("requeue", site.id("one"), site.id("three")) == [
        "requeued 1 stored message of example.net when queue-ondemand comes to it"
    ]
    assert site.err.err == "1 stored message on hold and not requeued; queuectl release releases them\n"
    assert [order.ids for order in site.orders(NET)] == [frozenset([site.id("three")])]
    assert site.run("flush", site.id("one")) == ["flushed 0 messages"]
    assert site.err.err == "1 stored message on hold and not tried; queuectl release releases them\n"


def test_limit_counts_what_is_stored_behind_the_messages_of_the_queue(site: Site) -> None:
    assert site.names("delete", "--domain", "example.net", "--limit", "2", "--dry-run") == ["own", "one"]
    site.run("delete", "--domain", "example.net", "--state", "stored", "--limit", "1")
    assert [order.ids for order in site.orders(NET)] == [frozenset([site.id("one")])]


def test_stored_shows_holds_and_orders(site: Site) -> None:
    site.run("hold", site.id("one"), "--reason", "ask Jo")
    site.run("hold", "--domain", "example.com", "--reason", "moving")
    site.run("delete", site.id("three"))
    com, net = site.run("stored")
    assert com.endswith("ondemand; on hold: moving") and net.endswith("ondemand; 1 message on hold; ordered: delete")
    facts = [json.loads(line) for line in site.run("stored", "--format", "json")]
    assert [(each["held"], each["hold"], each["orders"]) for each in facts] == [
        (1, "moving", []), (1, None, ["delete"]),
    ]  # fmt: skip
    assert [line.lower().split("@example.net", 1)[1] for line in site.run("stored", "example.net")] == [
        " held: ask jo", " held: ask jo", " ordered: delete",
    ]  # fmt: skip
    facts = [json.loads(line) for line in site.run("stored", "example.net", "--format", "json")]
    assert [(each["held"], each["ordered"]) for each in facts] == [("ask Jo", "")] * 2 + [(None, "delete")]


def test_a_domain_is_put_on_hold_as_a_whole(site: Site) -> None:
    site.run("hold", "--domain", "example.net", "--reason", "moving")
    assert DomainStore(site.home.queue).held(NET) == {"all"}
    store(site.home, "later", "x@example.net")
    assert len(site.run("list", "--stored", "--held")) == 3
    assert site.run("release", site.id("one")) == ["released 1 stored message of example.net"]
    assert "example.net is on hold as a whole; queuectl release --domain example.net" in site.err.err
    assert site.run("release", "--domain", "example.net") == [
        "released 1 message, and 3 stored messages of example.net"
    ]
    assert DomainStore(site.home.queue).held(NET) == frozenset()


def test_a_standing_hold_holds_what_is_stored_too(site: Site) -> None:
    site.run("hold", "--standing", "--sender", "joe@example.org")
    assert site.names("list", "--held") == ["two", "one"]


@pytest.mark.parametrize(("verb", "done"), [("delete", "deleted"), ("bounce", "bounced"), ("requeue", "requeued")])
def test_an_order_waits_for_queue_ondemand_and_takes_what_was_chosen(site: Site, verb: str, done: str) -> None:
    assert site.run(verb, "--recipient", "bob@example.net") == [
        f"{done} 1 stored message of example.net when queue-ondemand comes to it"
    ]
    assert site.orders(NET) == [StoredOrder(verb.encode(), b"bob@example.net", frozenset([site.id("one")]))]
    site.run(verb, "--state", "stored", "--sender", "joe@example.org", "--dry-run")
    assert site.err.err == f"would have {done} 2 stored messages of 2 domains\n"
    site.run(verb, "--state", "stored", "--sender", "joe@example.org")
    assert site.orders(NET) == [StoredOrder(verb.encode(), b"", frozenset([site.id("one")]))]
    assert site.orders(COM) == [StoredOrder(verb.encode(), b"", frozenset([site.id("two")]))]
    assert site.names(verb, "--dry-run", "--sender-domain", "example.org", "--domain", "example.net") == [
        "own", "one", "three",
    ]  # fmt: skip
    assert site.orders(NET) == []


def test_what_an_order_takes_is_listed_with_it_and_changed_by_no_other_command(site: Site) -> None:
    site.run("delete", "--recipient", "bob@example.net")
    assert [line.split(" for ")[1] for line in site.run("list", site.id("one"))] == [
        "example.net", "example.net, ordered: delete"
    ]  # fmt: skip
    site.run("delete", site.id("one"))
    assert {line.endswith(" ordered: delete") for line in site.run("list", site.id("one"))} == {True}
    assert "ordered: delete, which queue-ondemand has not done yet" in "\n".join(site.run("show", site.id("one")))
    assert site.run("stored")[1].endswith("; ordered: delete, delete")
    site.run("hold", site.id("one"), code=1)
    site.run("bounce", "--domain", "example.com")
    owner = os.stat(site.home.queue)
    assert list(check_stored(site.home.queue, (owner.st_uid, owner.st_gid))) == []
    store(site.home, "late", "eve@example.com", domain="example.com")
    assert [line.endswith(" ordered: bounce") for line in site.run("list", "--stored", "--domain", "example.com")] == [
        True, False
    ]  # fmt: skip
    [order] = site.orders(COM)
    assert order.command == b"bounce" and [end.number for end in order.ends] == [1]


def test_ids_come_from_standard_input(site: Site) -> None:
    command = [*program("queuectl"), "--home", site.home.path]
    ids = f"{site.id('one')}\n{site.own}\n1-1\n"
    listed = subprocess.run([*command, "list", "-"], input=ids, capture_output=True, text=True, timeout=60)
    assert [line.split()[0] for line in listed.stdout.splitlines()] == [site.own, site.id("one")]
    done = subprocess.run([*command, "delete", "-"], input=ids, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [
        "deleted 1 message, and 1 stored message of example.net when queue-ondemand comes to it"
    ]
    assert done.stderr.startswith("1-1: no such message")


def test_the_shape_of_what_is_stored_is_by_domain_and_age(site: Site) -> None:
    lines = [json.loads(line) for line in site.run("shape", "stored", "--format", "json")]
    assert {line["domain"]: line["T"] for line in lines} == {"TOTAL": 4, "example.net": 3, "example.com": 1}
    assert [line["1280+"] if "1280+" in line else line["2560+"] for line in lines] == [line["T"] for line in lines]
    [total, *_] = [json.loads(line) for line in site.run("shape", "-s", "stored", "--format", "json")]
    assert total["T"] == 3
    [total, *_] = [json.loads(line) for line in site.run("shape", "--format", "json")]
    assert total["T"] == 1, "without a name only what is in the queue"


def test_of_several_queues_each_has_its_own_and_an_id_is_found_in_all(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    home = make_several(tmp_path / "home", "a", "b")
    one = store(home.choose("a"), "one", "ann@example.net").long_id
    two = store(home.choose("b"), "two", "bob@example.net").long_id

    def run(*words: str) -> list[str]:
        assert main(["queuectl", "--home", home.path, *words]) == 0
        return capfd.readouterr().out.splitlines()

    assert [line.split()[0] for line in run("list", "--stored")] == [f"a/{one}", f"b/{two}"]
    assert run("show", two)[0] == f"message: b/{two}"
    when = "of example.net when queue-ondemand comes to it"
    assert run("delete", f"b/{two}", one) == [f"queue {name}: deleted 1 stored message {when}" for name in "ab"]
    assert DomainStore(home.choose("b").queue).first_order(NET, lambda given: 0.0).order is not None
    main(["queuectl", "--home", home.path, "list", "--stored"])
    assert capfd.readouterr().out.count(" ordered: delete\n") == 2


def test_a_stored_message_of_several_queues_is_found_by_its_id_and_missing_only_if_none_has_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    home = make_several(tmp_path / "home", "a", "b")
    one = store(home.choose("a"), "one", "ann@example.net").long_id
    store(home.choose("b"), "two", "bob@example.net")

    def run(*words: str) -> tuple[int, str]:
        code = main(["queuectl", "--home", home.path, "stored", "example.net", *words])
        return code, capfd.readouterr().err

    no_answer = (
        f"queuectl: fatal: queue a: unable to ask queue-ondemand at {home.choose('a').queue}/intake/ondemand: "
        "it does not run; start the suite\n"
    )
    for name in (one, f"a/{one}"):
        for order in ("--bounce", "--delete"):
            assert run(name, order) == (111, no_answer.replace("fatal: queue a: ", "queue a: "))
    assert run(f"b/{one}", "--bounce") == (
        1, f"queuectl: fatal: unable to find b/{one}: it is not stored for example.net\n"
    )  # fmt: skip
    assert run("1-1", "--bounce") == (
        1, "queuectl: fatal: unable to find 1-1: it is not stored for example.net in any queue (a, b)\n"
    )  # fmt: skip
    os.rename(home.choose("b").queue, f"{home.path}/away")
    assert run(one, "--bounce")[0] == 111, "it is in queue a, whose queue-ondemand does not run"
    code, told = run("1-1", "--bounce")
    assert (code, told.startswith("queuectl: fatal: unable to find 1-1: queue b: unable to ")) == (111, True)


@pytest.fixture
def damaged(site: Site) -> Site:
    """The only cluster of example.com cannot be read."""
    path = Path(site.home.queue, "ondemand", "example.com", "1.cluster")
    path.unlink()
    path.mkdir()
    return site


def test_what_cannot_be_read_of_one_domain_is_named_and_the_others_are_shown(damaged: Site) -> None:
    why = f"unable to read {damaged.home.queue}/ondemand/example.com/1.cluster: is a directory; "
    assert damaged.names("list", "--stored", code=111) == ["one", "three"]
    assert why in damaged.err.err and "queuectl check says what is wrong" in damaged.err.err
    assert [line.split(":")[0] for line in damaged.run("stored", code=111)] == ["example.net"]
    assert why in damaged.err.err
    assert damaged.run("stored", "example.com", code=111) == [] and why in damaged.err.err
    assert len(damaged.run("stored", "example.net")) == 3
    assert damaged.run("show", damaged.id("one"))[1] == "state: stored", "nothing of another domain is needed"
    assert damaged.run("show", damaged.id("two"), code=111) == [] and why in damaged.err.err
    assert any("example.net" in line for line in damaged.run("shape", "stored", code=111))
    assert why in damaged.err.err


def test_what_can_be_read_is_changed_though_another_domain_cannot_be_read(damaged: Site) -> None:
    assert "1 stored message" in damaged.run("hold", damaged.id("one"))[-1]
    assert "1 stored message" in damaged.run("hold", "--state", "stored", "--reason", "x", code=111)[-1]
    assert "example.com/1.cluster: is a directory" in damaged.err.err
    assert "1 stored message" in damaged.run("delete", "--state", "stored", "--sender", "joe@example.org", code=111)[-1]
    assert [order.ids for order in damaged.orders(NET)] == [{damaged.id("one")}]
    assert "2 stored messages" in damaged.run("release", "--domain", "example.net")[-1]
