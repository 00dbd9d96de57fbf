"""What a reason says: its template, the code in it and the class of the trouble."""

import random
import time
from typing import NamedTuple

import pytest

from queue_report.match.reasons import Said, abridge, describe, enhanced_code, template

SAID = "_does_not_like_recipient./Remote_host_said:_"


class Case(NamedTuple):
    """A reason and what is made of it."""

    reason: str
    template: str
    code: str
    kind: str


CASES = [
    # queue-suite's and qmail's own texts.
    Case(
        "Sorry,_I_wasn't_able_to_establish_an_SMTP_connection._(#4.4.1)/",
        "Sorry,_I_wasn't_able_to_establish_an_SMTP_connection._(#4.4.1)/",
        "4.4.1",
        "network",
    ),
    Case(
        "Sorry,_I_couldn't_find_any_host_named_no.such.example._(#5.1.2)/",
        "Sorry,_I_couldn't_find_any_host_named_HOST._(#5.1.2)/",
        "5.1.2",
        "domain",
    ),
    Case("Connected_to_192.0.2.7_but_connection_died._(#4.4.2)/", "Connected_to_IP_but_connection_died._(#4.4.2)/",
         "4.4.2", "network"),
    Case("Sorry,_mx.example_takes_no_message_over_1000_bytes;_this_one_has_20480._(#5.3.4)/",
         "Sorry,_HOST_takes_no_message_over_N_bytes;_this_one_has_N._(#5.3.4)/", "5.3.4", "size"),
    Case("Delivery_process_ended_by_signal_9._(#4.3.0)/", "Delivery_process_ended_by_signal_N._(#4.3.0)/", "4.3.0",
         "system"),
    Case("Connected_to_2001:db8::1_but_its_TLS_certificate_is_not_good._(#4.7.5)/",
         "Connected_to_IP_but_its_TLS_certificate_is_not_good._(#4.7.5)/", "4.7.5", "tls"),
    # Replies of other hosts: the three digits and the code stay, ids, addresses, names and numbers go.
    Case(f"192.0.2.7{SAID}550_5.1.1_<a_b.c+d@x-y.example>:_Recipient_address_rejected:_User_unknown/Giving_up_on_192.0.2.7./",
         f"IP{SAID}550_5.1.1_ADDRESS:_Recipient_address_rejected:_User_unknown/Giving_up_on_IP./", "5.1.1", "mailbox"),
    Case(f"192.0.2.7{SAID}550_joe@x.example..._No_such_user/", f"IP{SAID}550_ADDRESS..._No_such_user/", "", "mailbox"),
    Case(f"mx1.x.example{SAID}450_4.2.0_<a@b>:_Greylisted,_see_http://postgrey.example.org/help/x.example.html_in_300_s/",
         f"HOST{SAID}450_4.2.0_ADDRESS:_Greylisted,_see_http://HOST/help/HOST_in_N_s/", "4.2.0", "rate"),
    Case(f"192.0.2.7{SAID}554_5.7.1_Service_unavailable;_Client_host_[198.51.100.2]_blocked_using_zen.spamhaus.org/",
         f"IP{SAID}554_5.7.1_Service_unavailable;_Client_host_[IP]_blocked_using_HOST/", "5.7.1", "spam"),
    Case(f"192.0.2.7{SAID}554_5.7.1_<a@antispam.example>:_Relay_access_denied/",
         f"IP{SAID}554_5.7.1_ADDRESS:_Relay_access_denied/", "5.7.1", "policy"),
    Case(f"192.0.2.7{SAID}550-5.7.26_This_mail_is_unauthenticated/550_5.7.26_a640c23a62f3a-b5d5f8si123456ejc.123_-_gsmtp/",
         f"IP{SAID}550-5.7.26_This_mail_is_unauthenticated/550_5.7.26_ID_-_gsmtp/", "5.7.26", "policy"),
    Case(f"192.0.2.7{SAID}552_5.2.2_Over_quota/", f"IP{SAID}552_5.2.2_Over_quota/", "5.2.2", "full"),
    Case(f"192.0.2.7{SAID}452_Mailbox_full:_450_of_400MB_at_12:34:56/",
         f"IP{SAID}452_Mailbox_full:_N_of_N_at_N:N:N/", "", "full"),
    Case(f"192.0.2.7{SAID}550-Requested_action_not_taken/550_see_RFC5321_and_8BITMIME/",
         f"IP{SAID}550-Requested_action_not_taken/550_see_RFC5321_and_8BITMIME/", "", "content"),
    Case("Remote_host_said:_421_4.3.2_Too_many_connections_from_203.0.113.9/",
         "Remote_host_said:_421_4.3.2_Too_many_connections_from_IP/", "4.3.2", "rate"),
    Case("550_5.6.11_Bare_LF_or_CR/", "550_5.6.11_Bare_LF_or_CR/", "5.6.11", "line_ends"),
    Case("550_5.6.0_Id_1tEKxZ-0001aB-2C_of_2001:db8:1:2:3:4:5:6/", "550_5.6.0_Id_ID_of_IP/", "5.6.0", "content"),
    # A time, with parts of a second, and in UTC.
    Case("451_4.7.500_Server_busy_from_[192.0.2.1]._[AM4PEPF7A5F.outlook.example_2026-02-12T08:25:36.183Z_08DC2B7A2F]",
         "451_4.7.500_Server_busy_from_[IP]._[HOST_ID:N:N_ID]", "4.7.500", "policy"),
    Case("due_since_2026-11-19T02:11:19Z:_gone", "due_since_ID:N:N:_gone", "", "other"),
    # Numbers that look like a code, and are none.
    Case("Version_2.0.0.1_at_10.5.1.1_and_5.1_of_x5.1.1/", "Version_IP_at_IP_and_N_of_x5.1.1/", "", "other"),
    Case("", "", "", "other"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case.reason[:60] for case in CASES])
def test_a_reason_has_a_template_a_code_and_a_class(case: Case) -> None:
    assert describe(case.reason.encode()) == Said(case.template, case.code, case.kind)


def test_a_reason_that_is_met_again_says_the_same() -> None:
    for _ in range(2):
        for case in CASES:
            assert describe(case.reason.encode()) == Said(case.template, case.code, case.kind)


def test_a_list_of_spammers_is_found_in_what_is_folded_as_an_id() -> None:
    assert describe(b"554_see_a1spamhaus9_now/").kind == "spam"
    assert describe(b"554_see_a1bcdefghi9_now/").kind == "other"


def test_successes_fold_too() -> None:
    said = "192.0.2.1_accepted_message./Remote_host_said:_250_2.0.0_Ok:_queued_as_"
    assert [template(text) for text in (said + "4Gk2Xn3T4Mz9sTl/", said + "zBcDfGhJk/", "did_0+0+1/")] == [
        "IP_accepted_message./Remote_host_said:_250_2.0.0_Ok:_queued_as_ID/",
        "IP_accepted_message./Remote_host_said:_250_2.0.0_Ok:_queued_as_ID/",
        "did_N+N+N/",
    ]


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("Remote_host_said:_550_5.1.1_no/", "5.1.1"),
        ("Remote_host_said:_550-no/550_5.2.2_full/", "5.2.2"),
        ("Sorry._(#4.4.1)/", "4.4.1"),
        ("Remote_host_said:_550_Exim_4.94.2_says_no/", ""),
        ("Remote_host_said:_550_see_RFC_4.2.2/", ""),
        ("Remote_host_said:_550_4.2.2_full/", ""),
    ],
)
def test_a_code_stands_behind_a_reply_code_of_its_class_or_in_parentheses(reason: str, code: str) -> None:
    assert enhanced_code(reason) == code


PIECES = (
    *("_", "_", "_", "_", "_", "_", "/", "/", "/", "queued_as_", "8BITMIME", "SMTPUTF8", "550-", "250_2.0.0"),
    *("a", "f9", "12345678", "-", "."),
    *("4Gk2Xn3T4M", ":", "<", ">", "@", "(", ")", "[", "192.0.2.1", "2001:db8::1", "mx.example", "Ok", "Z", "0"),
)


def test_what_is_abridged_has_the_same_template() -> None:
    source = random.Random(1)
    made = ["".join(source.choices(PIECES, k=source.randrange(1, 12))) for _ in range(20_000)]
    reasons = [*made, *(case.reason for case in CASES)]
    assert [reason for reason in reasons if template(abridge(reason)) != template(reason)] == []
    assert sum(abridge(reason) != reason for reason in reasons) > 500


HOSTILE = (
    *("x", "a@", "1.", "<", "<a@", "a.", "1:", "-a1", "a@....", "_a1", "queued_as_", "::", "a-", "said:_(", "1", "a1"),
    *("_/", "a.1-", "@", "9.9.9.", "_12345678a", "é"),
)


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("end", ["", "@", "!", "-", "."])
def test_the_time_for_a_long_reason_grows_no_faster_than_its_length(piece: str, end: str) -> None:
    text = piece * (200_000 // len(piece)) + end
    begin = time.process_time()
    template(text)
    abridge(text)
    enhanced_code(text)
    # It takes 0.05 s; what is quadratic takes minutes.
    assert time.process_time() - begin < 3
