"""The classes of mail: control/priorities and priorityrules, and the class in info/, notices, cleaning and QMTP."""

import pytest
from hypothesis import given

from queue_wire.control.listeners import Listener, Role, unpack_listeners
from queue_wire.control.priorities import (
    DEFAULT_CLASSES,
    choose_class,
    rule_class,
    unpack_priorities,
    unpack_priority_rules,
)
from queue_wire.files.envelope import is_class_name, pack_info, unpack_info, unpack_whole_info
from queue_wire.format_error import FormatError, LineError
from queue_wire.pipes.cleaning import TODO, Removal, pack_clean, unpack_clean
from queue_wire.pipes.notice import Arrived, Classified, NoticeReader, pack_arrived, pack_classified, unpack_notice
from queue_wire.pipes.qmtp import IntakeFacts, pack_facts, unpack_facts
from support.plugins import strategies

RULES = unpack_priority_rules(
    b"# who sends what\nuid:1000:bulk\nsender:@lists.example.org:bulk\nsender:Boss@example.org:urgent\nsender::bulk\n"
)


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", DEFAULT_CLASSES), (b"urgent\n# two\nnormal\n\nbulk-2\n", ("urgent", "normal", "bulk-2"))],
)
def test_the_classes_are_in_the_order_of_the_file(data: bytes, expected: tuple[str, ...]) -> None:
    assert unpack_priorities(data) == expected


@pytest.mark.parametrize(
    "data", [b"Bulk\n", b"a b\n", b"9a\n", b"../x\n", b"a\na\n", b"x" * 32, b"a\nb\nc\nd\ne\nf\ng\nh\ni\n"]
)
def test_a_class_that_is_no_name_stands_twice_or_is_one_too_many_is_refused(data: bytes) -> None:
    with pytest.raises(LineError):
        unpack_priorities(data)


@pytest.mark.parametrize(
    ("uid", "sender", "expected"),
    [
        (1000, b"boss@example.org", "bulk"),
        (7, b"BOSS@EXAMPLE.ORG", "urgent"),
        (7, b"x@Lists.Example.Org", "bulk"),
        (7, b"list-owner-@lists.example.org-@[]", "bulk"),
        (7, b"x@sub.lists.example.org", ""),
        (7, b"", "bulk"),
        (7, b"@lists.example.org", "bulk"),
        (7, b"root", ""),
    ],
)
def test_the_first_rule_that_fits_gives_the_class(uid: int, sender: bytes, expected: str) -> None:
    assert rule_class(RULES, uid, sender) == expected


@pytest.mark.parametrize(
    "line", [b"uid:1000", b"uid:x:bulk", b"uid:4294967295:bulk", b"sender:bulk", b"gid:1:bulk", b"sender:a@b:B"]
)
def test_a_rule_that_cannot_be_understood_is_refused_with_its_line(line: bytes) -> None:
    with pytest.raises(LineError, match="line 2"):
        unpack_priority_rules(b"uid:1:bulk\n" + line + b"\n")


@pytest.mark.parametrize(
    ("given_by_rule", "asked", "may_raise", "expected"),
    [
        ("", "", False, ""),
        ("b", "", False, "b"),
        ("b", "a", False, "b"),
        ("b", "a", True, ""),
        ("b", "c", False, "c"),
        ("", "b", False, "b"),
        ("gone", "gone", True, ""),
    ],
)
def test_anybody_may_lower_the_class_and_only_some_may_raise_it(
    given_by_rule: str, asked: str, may_raise: bool, expected: str
) -> None:
    rules = unpack_priority_rules(b"uid:1:%s\n" % given_by_rule.encode()) if given_by_rule else ()
    assert choose_class(("a", "b", "c"), rules, 1, b"x@y", asked, may_raise) == expected


@given(strategies.addresses, strategies.classes)
def test_the_class_behind_the_sender_in_info_comes_back(sender: bytes, priority: str) -> None:
    data = pack_info(sender, priority)
    assert unpack_whole_info(data) == (sender, priority, None, b"") and unpack_info(data) == sender
    # What qmail-send reads: up to the first NUL.
    assert data.partition(b"\0")[0] == b"F" + sender


@pytest.mark.parametrize(
    "rest", [b"P\0", b"PBulk\0", b"Pbulk", b"Pbulk\0x", b"Tbulk\0", b"\0", b"P" + b"x" * 32 + b"\0"]
)
def test_what_is_no_class_behind_the_sender_in_info_is_refused(rest: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_whole_info(b"Fa@b\0" + rest)


@given(strategies.ids, strategies.classes)
def test_notices_and_removals_carry_the_class(message: int, priority: str) -> None:
    short = Classified(message, True, False, priority)
    assert unpack_notice(pack_classified(short).removesuffix(b"\0")) == short
    for announced in (True, False):
        full = Arrived(message, 1, 2, b"a@b", [(b"R", b"c@d"), (b"L", b"Pe")], announced, priority=priority)
        (record,) = NoticeReader().feed(pack_arrived(full))
        assert unpack_notice(record) == full
    for slot in (None, 7):
        removal = Removal(message, TODO, slot, 9, priority)
        assert unpack_clean(pack_clean(*removal).removesuffix(b"\0")) == removal


@pytest.mark.parametrize(
    "record", [b"DL457 ", b"DL457 Bulk", b"DL457 bulk x", b"C1\x001\x002\x000\x000\x001\x002\0a\0PX"]
)
def test_a_notice_with_what_is_no_class_is_refused(record: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_notice(record)


@given(strategies.classes)
def test_facts_of_qmtp_carry_the_class_that_is_asked_for(priority: str) -> None:
    payload = pack_facts(uid=3, priority=priority).partition(b":")[2][1:-1]
    assert unpack_facts(payload) == IntakeFacts(3, priority=priority)
    with pytest.raises(FormatError):
        unpack_facts(b"class=" + priority.encode() + b" ")


def test_a_listener_may_give_its_mail_a_class() -> None:
    found = unpack_listeners(b"*:25 mx\n192.0.2.1:2525 mx bare priority=bulk\n")
    assert found == [Listener("*", 25, Role.MX), Listener("192.0.2.1", 2525, Role.MX, bare=True, priority="bulk")]
    with pytest.raises(LineError, match="priority=CLASS"):
        unpack_listeners(b"*:25 mx priority=Bulk\n")


@given(strategies.garbage)
def test_garbage_is_no_class_or_one_that_is_a_plain_name(data: bytes) -> None:
    assert not is_class_name(data) or data.replace(b"-", b"").isalnum()
