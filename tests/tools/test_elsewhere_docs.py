"""docs/from-qmail.md and docs/from-postfix.md: each command and file that they name exists, and nothing is left out."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from queue_admin.main import group
from queue_wire.control.registry import BY_NAME, OF_QMAIL

DOCS = Path(__file__).resolve().parents[2] / "docs"
QMAIL, POSTFIX = DOCS / "from-qmail.md", DOCS / "from-postfix.md"
PAGES = [QMAIL, POSTFIX]
CODE = re.compile(r"`([^`]+)`")
# Words in the column "here" that are no control files: programs, values and options of files.
OTHERS = frozenset(("sendmail", "mailq", "size", "dotlockfile", "tcprules"))


def names(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


# qmail-control(5).
QMAIL_CONTROL = names("""
    badmailfrom bouncefrom bouncehost concurrencylocal concurrencyremote databytes defaultdomain defaulthost
    doublebouncehost doublebounceto envnoathost helohost idhost localiphost locals me morercpthosts percenthack
    plusdomain qmqpservers queuelifetime rcpthosts smtpgreeting smtproutes timeoutconnect timeoutremote timeoutsmtpd
    virtualdomains""")
QMAIL_COMMANDS = names("""
    qmail-qread qmail-qstat qmail-tcpto qmail-tcpok qmail-showctl qmail-inject qmail-queue sendmail mailq newaliases
    forward condredirect bouncesaying except preline qmail-newu qmail-pw2u qmail-getpw qmail-newmrh qmail-smtpd
    qmail-send qmail-clean qmail-lspawn qmail-local qmail-rspawn qmail-remote qmail-start splogger maildirmake
    qmail-pop3d qmail-popup qmail-qmqpc qmail-qmqpd qmail-qmtpd""")
# What people set in main.cf; `postconf -d` of Postfix 3.7 has all of them.
MAIN_CF = names("""
    2bounce_notice_recipient alias_database alias_maps allow_mail_to_commands allow_mail_to_files always_bcc
    append_at_myorigin append_dot_mydomain authorized_flush_users authorized_submit_users biff body_checks
    bounce_queue_lifetime bounce_template_file canonical_maps command_time_limit compatibility_level content_filter
    debug_peer_list default_destination_concurrency_failed_cohort_limit default_destination_concurrency_limit
    default_destination_rate_delay default_destination_recipient_limit default_privs default_process_limit
    default_transport_rate_delay defer_transports delay_warning_time disable_dns_lookups disable_vrfy_command
    double_bounce_sender empty_address_recipient error_notice_recipient fallback_transport fast_flush_domains
    forward_path header_checks home_mailbox hopcount_limit in_flow_delay inet_interfaces inet_protocols
    initial_destination_concurrency local_recipient_maps local_transport luser_relay mail_owner mail_spool_directory
    mailbox_command mailbox_delivery_lock mailbox_size_limit mailbox_transport maillog_file masquerade_domains
    maximal_backoff_time maximal_queue_lifetime message_size_limit milter_default_action mime_header_checks
    minimal_backoff_time mydestination mydomain myhostname mynetworks mynetworks_style myorigin non_smtpd_milters
    notify_classes owner_request_special postscreen_greet_action qmgr_message_active_limit
    qmgr_message_recipient_limit queue_directory queue_minfree queue_run_delay recipient_bcc_maps
    recipient_canonical_maps recipient_delimiter relay_domains relayhost remote_header_rewrite_domain sender_bcc_maps
    sender_canonical_maps sender_dependent_default_transport_maps sender_dependent_relayhost_maps setgid_group
    smtp_bind_address smtp_bind_address6 smtp_connect_timeout smtp_connection_cache_destinations
    smtp_connection_cache_on_demand smtp_connection_reuse_time_limit smtp_data_done_timeout
    smtp_destination_concurrency_limit smtp_destination_rate_delay smtp_discard_ehlo_keywords smtp_dns_support_level
    smtp_fallback_relay smtp_generic_maps smtp_helo_name smtp_helo_timeout smtp_host_lookup smtp_line_length_limit
    smtp_mail_timeout smtp_mx_address_limit smtp_sasl_auth_enable smtp_sasl_mechanism_filter smtp_sasl_password_maps
    smtp_sasl_security_options smtp_tls_CAfile smtp_tls_CApath smtp_tls_cert_file smtp_tls_key_file smtp_tls_loglevel
    smtp_tls_mandatory_protocols smtp_tls_note_starttls_offer smtp_tls_policy_maps smtp_tls_security_level
    smtp_tls_session_cache_database smtpd_banner smtpd_client_connection_rate_limit smtpd_client_restrictions
    smtpd_helo_required smtpd_helo_restrictions smtpd_milters smtpd_recipient_limit smtpd_recipient_restrictions
    smtpd_relay_restrictions smtpd_sasl_auth_enable smtpd_sasl_type smtpd_sender_restrictions smtpd_tls_cert_file
    smtpd_tls_key_file smtpd_tls_security_level smtputf8_enable soft_bounce strict_mailbox_ownership syslog_facility
    transport_maps virtual_alias_domains virtual_alias_maps virtual_gid_maps virtual_mailbox_base
    virtual_mailbox_domains virtual_mailbox_maps virtual_transport virtual_uid_maps""")
POSTFIX_COMMANDS = names("""
    postqueue postsuper postcat postconf postmap postalias qshape mailq newaliases postfix postlog postdrop postlock
    postmulti collate pflogsumm""")


def rows(page: Path) -> Iterator[tuple[str, str]]:
    """Yield both cells of each row of the page's tables."""
    for line in page.read_text().splitlines():
        if line.startswith("| "):
            left, right = re.split(r"(?<!\\) \| ", line.removeprefix("| ").removesuffix(" |"))
            yield left, right


def words(page: Path) -> set[str]:
    """Return the words in code of the left column."""
    return {word for left, _ in rows(page) for code in CODE.findall(left) for word in code.split()}


def ours(page: Path) -> list[str]:
    """Return the pieces of code in the right column."""
    return [code for _, right in rows(page) for code in CODE.findall(right)]


def check_queuectl(text: str) -> None:
    """Fail if a command line of queuectl names a command or an option that there is not."""
    found: click.Command = group
    for word in text.split()[1:]:
        if isinstance(found, click.Group) and word in found.commands:
            found = found.commands[word]
        elif word.startswith("-") and word not in ("-", "--help"):
            assert any(word in parameter.opts for parameter in found.params), f"{text}: {word}"
        else:
            assert not (isinstance(found, click.Group) and word.islower()), f"{text}: {word}"


@pytest.mark.parametrize("page", [*PAGES, DOCS / "receiving.md"], ids=lambda page: page.name)
def test_each_queuectl_command_and_option_exists(page: Path) -> None:
    found = [code for code in CODE.findall(page.read_text()) if code.startswith("queuectl ")]
    assert found or page.name == "receiving.md"
    for code in found:
        check_queuectl(code)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_control_file_in_the_right_column_exists(page: Path) -> None:
    found = [code for code in ours(page) if re.fullmatch(r"[a-z0-9]+", code)]
    assert len(found) > 20
    assert [code for code in found if code not in BY_NAME and code not in OTHERS | QMAIL_COMMANDS] == []


def test_each_control_file_and_command_of_qmail_has_a_row() -> None:
    assert sorted((QMAIL_CONTROL | OF_QMAIL | QMAIL_COMMANDS) - words(QMAIL)) == []
    assert not QMAIL_CONTROL - OF_QMAIL - BY_NAME.keys()


def test_each_common_setting_and_command_of_postfix_has_a_row() -> None:
    assert len(MAIN_CF) > 100
    assert sorted((MAIN_CF | POSTFIX_COMMANDS) - words(POSTFIX)) == []
