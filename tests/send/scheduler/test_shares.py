"""Shares: however many destinations one user, one zone or one submitter has, mail of others finds a place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base.limits import Limits
from queue_send.scheduler.model import Entry, Settings
from queue_send.scheduler.nexthop import holder_of, submitter_of
from support.send.recorder import Recorder

LOCAL = Settings(concurrency=10, active=1000, limits=Limits())
REMOTE = Settings(concurrency=250, active=20_000, limits=Limits())


def names(pattern: bytes, count: int) -> list[bytes]:
    """So many nexthops."""
    return [pattern % number for number in range(count)]


def hang(recorder: Recorder, nexthops: list[bytes], submitter: bytes | None = None) -> list[Entry]:
    """Send one message to each nexthop; return the jobs that are in flight when they have hung for 100 s."""
    for name in nexthops:
        recorder.send((name, 1), known=True, submitter=submitter)
    running: list[Entry] = []
    for now in range(0, 100, 5):
        running += recorder.start(1000.0 + now)
    return running


def hang_at(recorder: Recorder, address: bytes, nexthops: list[bytes]) -> list[Entry]:
    """Send one message to each nexthop, which hangs at the address; return the jobs that are in flight after 100 s."""
    for name in nexthops:
        recorder.send((name, 1), known=True)
    running: list[Entry] = []
    for now in range(0, 100, 5):
        started = recorder.start(1000.0 + now)
        for entry in started:
            recorder.scheduler.note_address(entry, address)
        running += started
    return running


def make_prompt(recorder: Recorder, nexthops: list[bytes]) -> None:
    """Let each nexthop have taken a message promptly."""
    for name in nexthops:
        recorder.send((name, 1))
        for entry in recorder.start(0.0):
            recorder.end(entry, 0.1)


def started(recorder: Recorder, nexthops: list[bytes], submitter: bytes | None = None) -> list[bytes]:
    """Send one message to each nexthop; return those to which a job started at once."""
    for name in nexthops:
        recorder.send((name, 1), known=True, submitter=submitter)
    return [entry.nexthop for entry in recorder.start(1100.0)]


def test_programs_of_one_user_that_hang_leave_local_places_for_others_of_whom_nothing_is_known() -> None:
    recorder = Recorder(LOCAL)
    hang(recorder, names(b"alice-%d@me.example", 12))
    assert started(recorder, [b"bob@me.example", b"carol@me.example"]) == [b"bob@me.example", b"carol@me.example"]


def test_programs_of_three_users_that_hang_leave_a_local_place_for_who_is_prompt() -> None:
    recorder = Recorder(LOCAL)
    make_prompt(recorder, [b"dave@me.example"])
    for user in (b"alice", b"bob", b"carol"):
        hang(recorder, names(user + b"-%d@me.example", 12))
    assert started(recorder, [b"dave@me.example"]) == [b"dave@me.example"]


def test_addresses_of_one_user_that_were_prompt_once_and_hang_leave_local_places_for_others() -> None:
    recorder = Recorder(LOCAL)
    make_prompt(recorder, names(b"alice-%d@me.example", 12))
    assert len(hang(recorder, names(b"alice-%d@me.example", 12))) < 10
    assert started(recorder, [b"bob@me.example"]) == [b"bob@me.example"]


@pytest.mark.parametrize("known", [False, True])
def test_tarpits_of_one_zone_leave_places_for_fresh_domains(known: bool) -> None:
    recorder = Recorder(REMOTE)
    tarpits = names(b"h%d.evil.example", 400)
    if known:
        make_prompt(recorder, tarpits)
    hang(recorder, tarpits)
    fresh = names(b"fresh%d.example", 20)
    assert started(recorder, fresh) == fresh


@pytest.mark.parametrize("address", [b"192.0.2.1", b"2001:db8::1"])
def test_further_mail_for_unrelated_tarpits_at_one_address_leaves_places_for_fresh_domains(address: bytes) -> None:
    recorder = Recorder(REMOTE)
    tarpits = names(b"tarpit%d.example", 150)
    assert len(hang_at(recorder, address, tarpits)) == 150
    hang_at(recorder, address, tarpits)
    fresh = names(b"fresh%d.example", 20)
    assert started(recorder, fresh) == fresh


def test_the_addresses_of_one_ipv6_network_have_one_share() -> None:
    recorder = Recorder(REMOTE)
    tarpits = names(b"tarpit%d.example", 150)
    for number, name in enumerate(tarpits):
        hang_at(recorder, b"2001:db8::%d" % number, [name])
    hang_at(recorder, b"2001:db8::1", tarpits)
    fresh = names(b"fresh%d.example", 20)
    assert started(recorder, fresh) == fresh


def test_domains_at_one_address_that_were_slow_leave_places_for_slow_hosts_of_others() -> None:
    recorder = Recorder(REMOTE)
    tarpits, slow = names(b"tarpit%d.example", 150), names(b"slow%d.example", 20)
    for address, nexthops in ((b"192.0.2.1", tarpits), (b"192.0.2.2", slow)):
        for entry in hang_at(recorder, address, nexthops):
            recorder.end(entry, 1100.0)
    hang_at(recorder, b"192.0.2.1", tarpits)
    assert started(recorder, slow) == slow


def test_a_job_of_a_prompt_domain_that_hangs_counts_for_its_address_at_once() -> None:
    recorder = Recorder(REMOTE)
    prompt = names(b"prompt%d.example", 150)
    make_prompt(recorder, prompt)
    running = hang_at(recorder, b"192.0.2.1", prompt)
    assert len(running) == 150
    tarpits = names(b"tarpit%d.example", 30)
    hang_at(recorder, b"192.0.2.1", tarpits)
    hang_at(recorder, b"192.0.2.1", tarpits)
    fresh = names(b"fresh%d.example", 20)
    assert started(recorder, fresh) == fresh


def test_prompt_domains_at_an_address_where_very_many_jobs_hang_may_have_all_places_that_are_free() -> None:
    recorder = Recorder(REMOTE)
    prompt = names(b"prompt%d.example", 100)
    make_prompt(recorder, prompt)
    for entry in hang_at(recorder, b"192.0.2.1", prompt[:10]):
        recorder.end(entry, 1000.2)
    running = hang_at(recorder, b"192.0.2.1", names(b"tarpit%d.example", 150))
    assert len(started(recorder, prompt)) == min(100, REMOTE.concurrency - len(running))


def test_a_destination_that_waits_for_the_share_of_its_address_starts_when_a_job_there_ends() -> None:
    recorder = Recorder(REMOTE)
    tarpits = names(b"tarpit%d.example", 150)
    running = hang_at(recorder, b"192.0.2.1", tarpits)
    assert not hang_at(recorder, b"192.0.2.1", tarpits)
    for entry in running[:90]:
        recorder.end(entry, 1200.0)
    assert recorder.start(1200.0)


def test_strangers_of_one_submitter_that_hang_leave_places_for_another_submitter() -> None:
    recorder = Recorder(REMOTE)
    hang(recorder, names(b"dead%d.example", 2000), b"uid 1000")
    fresh = names(b"fresh%d.example", 20)
    assert started(recorder, fresh, b"uid 1001") == fresh


def test_destinations_that_were_prompt_once_and_hang_leave_places_for_another_submitter() -> None:
    recorder = Recorder(REMOTE)
    once, prompt = names(b"once%d.example", 300), names(b"prompt%d.example", 20)
    make_prompt(recorder, once + prompt)
    assert len(hang(recorder, once, b"uid 1000")) == 219
    assert started(recorder, prompt, b"uid 1001") == prompt


def test_destinations_that_have_answered_just_now_and_hang_leave_places_for_another_submitter() -> None:
    recorder = Recorder(REMOTE)
    once, prompt = names(b"once%d.example", 300), names(b"prompt%d.example", 10)
    make_prompt(recorder, once + prompt)
    for name in once * 3:
        recorder.send((name, 1), known=True, submitter=b"uid 1000")
    answered, running = set[bytes](), 0
    for step in range(40):
        for entry in recorder.start(1000.0 + step * 0.2):
            if entry.nexthop in answered:
                running += 1
            else:
                # With more mail waiting it stays known that it has answered.
                answered.add(entry.nexthop)
                recorder.end(entry, 1000.0 + step * 0.2)
    assert running > 219
    assert started(recorder, prompt, b"uid 1001") == prompt


def test_mail_for_a_destination_that_answers_goes_on_though_other_mail_of_its_submitter_hangs() -> None:
    recorder = Recorder(REMOTE)
    once = names(b"once%d.example", 300)
    make_prompt(recorder, [*once, b"large.example"])
    hang(recorder, once, b"uid 1000")
    assert not started(recorder, [b"large.example"], b"uid 1000")
    # Mail of others goes before that of who has his share, also if it comes later.
    for _ in range(2):
        recorder.send((b"large.example", 1), known=True, submitter=b"uid 1001")
    [entry, _] = recorder.start(1100.0)
    recorder.end(entry, 1100.2)
    [entry] = recorder.start(1100.2)
    assert (entry.nexthop, entry.attempt.submitter) == (b"large.example", b"uid 1000")


def test_mail_that_is_withdrawn_from_before_that_of_who_has_his_share_starts_none_of_his() -> None:
    recorder = Recorder(REMOTE)
    once = names(b"once%d.example", 300)
    make_prompt(recorder, [*once, b"large.example"])
    hang(recorder, once, b"uid 1000")
    recorder.send((b"large.example", 30), known=True, submitter=b"uid 1000")
    assert not recorder.start(1100.0)
    other = recorder.send((b"large.example", 1), known=True, submitter=b"uid 1001")
    found = recorder.scheduler.next_load(1100.0)
    assert found is not None
    recorder.load(*found, 1100.0)
    recorder.scheduler.withdraw(other, 1100.0)
    assert not recorder.start(1100.0)
    recorder.send((b"large.example", 1), known=True, submitter=b"uid 1001")
    assert [entry.attempt.submitter for entry in recorder.start(1100.0)] == [b"uid 1001"]


def test_the_first_message_of_a_submitter_does_not_wait_behind_those_of_one_who_has_very_many() -> None:
    recorder = Recorder(REMOTE)
    running = hang(recorder, names(b"dead%d.example", 2000), b"uid 1000")
    recorder.end(running[0], 1100.0, good=False)
    assert b"fresh.example" in started(recorder, [b"fresh.example"], b"uid 1001")


def test_a_destination_that_waits_for_a_share_starts_when_a_job_of_it_ends() -> None:
    recorder = Recorder(LOCAL)
    running = hang(recorder, names(b"alice-%d@me.example", 12))
    waiting = [b"alice-%d@me.example" % number for number in range(len(running), 12)]
    recorder.end(running.pop(), 1200.0)
    assert [entry.nexthop for entry in recorder.start(1200.0)] == waiting[:1]


def test_a_destination_that_waits_for_a_share_starts_when_the_jobs_of_others_have_ended() -> None:
    recorder = Recorder(LOCAL)
    others = hang(recorder, names(b"bob-%d@me.example", 4))
    running = hang(recorder, names(b"alice-%d@me.example", 12))
    for entry in others:
        recorder.end(entry, 1100.0)
    running += recorder.start(1100.0)
    assert len(running) == 5


def test_a_relay_for_all_mail_may_have_all_remote_places_once_it_is_known_to_be_prompt() -> None:
    recorder = Recorder(REMOTE._replace(limits=Limits(initial=250, most=250)))
    make_prompt(recorder, [b"relay.example"])
    assert len(started(recorder, [b"relay.example"] * 300)) == 250


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.floats(0.1, 40.0)), max_size=60))
def test_no_user_has_all_places_and_nothing_is_left_in_shares_when_all_has_ended(
    jobs: list[tuple[int, bool, float]],
) -> None:
    recorder = Recorder(LOCAL)
    now, running = 0.0, []
    for number, (user, ends, seconds) in enumerate(jobs):
        recorder.send((b"u%d-%d@me.example" % (user, number % 9), 1), known=True, submitter=b"uid %d" % (number % 2))
        running += recorder.start(now)
        users = [entry.nexthop.partition(b"-")[0] for entry in running]
        assert all(users.count(each) < 10 for each in users)
        now += seconds
        while ends and running:
            recorder.end(running.pop(), now)
    while running := running + recorder.start(now):
        recorder.end(running.pop(), now)
    assert not recorder.scheduler.attempts and not recorder.scheduler.waiting
    shares = recorder.scheduler.round_robin._shares
    assert not shares.waiting and not any(each.held or each.unsure for each in shares._shares.values())


@pytest.mark.parametrize(
    ("nexthop", "holder"),
    [
        (b"alice@me.example", b"alice@"),
        (b"Alice-ext-more@other.example", b"alice@"),
        (b"example.com", b"example.com"),
        (b"a.b.example.com", b"example.com"),
        (b"shop.example.co.uk", b"example.co.uk"),
        (b"example.co.uk", b"example.co.uk"),
        (b"mail.example.de", b"example.de"),
        (b"localhost", b"localhost"),
        (b"192.0.2.7", b"192.0.2.7"),
        (b"[192.0.2.7]", b"[192.0.2.7]"),
        (b"127.0.0.1:2525", None),
        (b"one.example,two.example", None),
        (b"lmtp:/run/lmtp", None),
    ],
)
def test_the_holder_of_a_nexthop_is_its_local_user_or_its_zone(nexthop: bytes, holder: bytes | None) -> None:
    assert holder_of(nexthop) == holder


def test_the_submitter_of_a_list_is_the_same_for_each_recipient_and_a_local_user_is_one_whatever_the_sender() -> None:
    senders = [b"list-return-1-a=b.example@lists.example", b"list-return-2-c=d.example@Lists.example"]
    assert len({submitter_of(sender) for sender in senders}) == 1
    assert submitter_of(b"list+bounce@lists.example") in {submitter_of(sender) for sender in senders}
    named = submitter_of(b"x@a.example", None, b"0123456789abcdef")
    assert named == submitter_of(b"y@b.example", 1000, b"0123456789abcdef")
    assert submitter_of(b"x@a.example", 1000) == submitter_of(b"y@b.example", 1000) != submitter_of(b"x@a.example")
