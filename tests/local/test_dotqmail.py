""".qmail files: their names for an address, and the instructions in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_wire.dotqmail import (
    FORWARD,
    MAILDIR,
    MBOX,
    PROGRAM,
    Instruction,
    qmail_names,
    safe_extension,
    unpack_dotqmail,
)
from queue_wire.format_error import FormatError


def test_the_plain_user_has_one_file() -> None:
    assert qmail_names(b"", b"") == [b".qmail"]


@pytest.mark.parametrize(
    ("extension", "names"),
    [
        (b"", [b".qmail-", b".qmail-default"]),
        (b"a", [b".qmail-a", b".qmail-default"]),
        (b"a-", [b".qmail-a-", b".qmail-a-default", b".qmail-default"]),
        (b"a-b", [b".qmail-a-b", b".qmail-a-default", b".qmail-default"]),
        (b"a-b-c", [b".qmail-a-b-c", b".qmail-a-b-default", b".qmail-a-default", b".qmail-default"]),
        (b"List.Name-X", [b".qmail-list:name-x", b".qmail-list:name-default", b".qmail-default"]),
    ],
)
def test_an_extension_is_looked_for_whole_and_then_from_dash_to_dash(extension: bytes, names: list[bytes]) -> None:
    assert qmail_names(b"-", extension) == names


@pytest.mark.parametrize(
    ("dash", "extension", "names"),
    [
        (b"", b"a-b", [b".qmaila-b", b".qmaila-default", b".qmaildefault"]),
        (b"-/", b"A.b", [b".qmail-/a:b", b".qmail-/default"]),
        (b"-list-", b"x", [b".qmail-list-x", b".qmail-list-default"]),
    ],
)
def test_users_assign_may_have_other_dashes(dash: bytes, extension: bytes, names: list[bytes]) -> None:
    assert qmail_names(dash, extension) == names


@given(st.binary(max_size=60).filter(lambda extension: b"\0" not in extension))
def test_no_extension_leaves_the_home_directory(extension: bytes) -> None:
    for name in qmail_names(b"-", extension):
        assert b"/" not in name and b".." not in name and name.startswith(b".qmail-")


@given(st.binary(max_size=40))
def test_case_and_dots_of_an_extension_do_not_count(extension: bytes) -> None:
    assert safe_extension(extension.upper()) == safe_extension(extension.lower())
    assert safe_extension(safe_extension(extension)) == safe_extension(extension)
    assert len(safe_extension(extension)) == len(extension)


def test_each_kind_of_line_is_told_by_its_first_and_last_bytes() -> None:
    lines = b"# comment\n./Maildir/\n/var/mail/Box\n|program -x\n&me@far.example\nme@far.example\n\n.//  \t\n./box /\n"
    assert unpack_dotqmail(lines) == [
        Instruction(MAILDIR, b"./Maildir/"),
        Instruction(MBOX, b"/var/mail/Box"),
        Instruction(PROGRAM, b"program -x"),
        Instruction(FORWARD, b"me@far.example"),
        Instruction(FORWARD, b"me@far.example"),
        Instruction(MAILDIR, b".//"),
        Instruction(MAILDIR, b"./box /"),
    ]


def test_the_last_line_counts_without_its_newline() -> None:
    assert unpack_dotqmail(b"./Maildir/") == unpack_dotqmail(b"./Maildir/\n") == [Instruction(MAILDIR, b"./Maildir/")]


def test_a_file_of_comments_is_no_instructions() -> None:
    assert unpack_dotqmail(b"#\n# nothing\n") == []


@pytest.mark.parametrize("data", [b"\n./Maildir/\n", b"  \t\n./Maildir/\n", b" "])
def test_a_blank_first_line_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match=r"first line of \.qmail file is blank"):
        unpack_dotqmail(data)


def test_a_nul_is_refused_with_its_line() -> None:
    with pytest.raises(FormatError, match=r"line 2 of \.qmail file holds a NUL"):
        unpack_dotqmail(b"./Maildir/\n./a\0b/\n")


@pytest.mark.parametrize(("line", "word"), [(b"./Maildir/", "file"), (b"./Mailbox", "file"), (b"|true", "prog")])
def test_an_executable_file_may_only_forward(line: bytes, word: str) -> None:
    assert unpack_dotqmail(b"&a@b.example\n", True) == [Instruction(FORWARD, b"a@b.example")]
    with pytest.raises(FormatError, match=f"has {word} delivery but has x bit set"):
        unpack_dotqmail(b"&a@b.example\n" + line, True)


def test_the_list_line_allows_only_forwards_after_it() -> None:
    before = unpack_dotqmail(b"./Maildir/\n+list\n&a@b.example\n+other\n")
    assert [instruction.kind for instruction in before] == [MAILDIR, FORWARD]
    with pytest.raises(FormatError):
        unpack_dotqmail(b"+list\n./Maildir/\n")


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_instructions_or_a_format_error(data: bytes, forward_only: bool) -> None:
    try:
        found = unpack_dotqmail(data, forward_only)
    except FormatError:
        return
    assert len(found) <= data.count(b"\n") + 1
    for instruction in found:
        assert b"\n" not in instruction.argument and b"\0" not in instruction.argument


@given(st.lists(st.from_regex(rb"\A[#|&./a-z][!-~ ]{0,20}[!-~]\Z"), min_size=1))
def test_each_line_means_the_same_alone_and_among_others(lines: list[bytes]) -> None:
    alone = [instruction for line in lines for instruction in unpack_dotqmail(line)]
    assert unpack_dotqmail(b"\n".join(lines)) == unpack_dotqmail(b" \n".join(lines) + b"\n\n") == alone
