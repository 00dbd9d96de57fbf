"""aliases(5): what an entry names, and what is wrong with one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_admin.aliases.alias_file import (
    ADDRESS,
    INCLUDE,
    PATH,
    PROGRAM,
    AliasTarget,
    Fault,
    parse_aliases,
    parse_include,
)

ONE = st.from_regex(rb"\A[a-z0-9][a-z0-9._+-]{0,8}(@[a-z]{1,5}\.example)?\Z")
PIECES = [*(bytes((byte,)) for byte in b'a:,"\\()<>|/\n @#\0\xff'), b":include:"]
NAME = st.from_regex(rb"\A[a-z0-9][a-z0-9._+-]{0,8}\Z")


def targets(text: bytes) -> list[AliasTarget]:
    """Return the targets of one entry, which must have no fault."""
    found = parse_aliases(b"name: " + text + b"\n")
    assert not found.faults and len(found.aliases) == 1, found
    return found.aliases[0].targets


@pytest.mark.parametrize(
    ("text", "kind", "argument"),
    [
        (b"ann", ADDRESS, b"ann"),
        (b"Ann@Far.Example", ADDRESS, b"Ann@Far.Example"),
        (b"\\ann", ADDRESS, b"ann"),
        (b'"\\\\ann"', ADDRESS, b"ann"),
        (b'"ann smith"@far.example', ADDRESS, b"ann smith@far.example"),
        (b'"a,b"', ADDRESS, b"a,b"),
        (b"ann (the boss, really) @far.example", ADDRESS, None),
        (b"ann@far.example (the boss, really)", ADDRESS, b"ann@far.example"),
        (b'"Ann, Smith" <ann@far.example>', ADDRESS, b"ann@far.example"),
        (b'"|/usr/bin/vacation -a x, ann"', PROGRAM, b"/usr/bin/vacation -a x, ann"),
        (b'|"/usr/bin/vacation ann"', PROGRAM, b"/usr/bin/vacation ann"),
        (b'|/bin/x "a, b" (c)', PROGRAM, b'/bin/x "a, b" (c)'),
        (b'"|/bin/x \\"a b\\""', PROGRAM, b'/bin/x "a b"'),
        (b"/var/mail/old", PATH, b"/var/mail/old"),
        (b'"/var/mail/two words/"', PATH, b"/var/mail/two words/"),
        (b":include:/etc/list", INCLUDE, b"/etc/list"),
        (b'":INCLUDE: /etc/my list"', INCLUDE, b"/etc/my list"),
    ],
)
def test_a_target_is_told_by_how_it_begins_without_its_quotes(text: bytes, kind: str, argument: bytes | None) -> None:
    if argument is None:
        assert parse_aliases(b"name: " + text).faults
    else:
        assert targets(text) == [AliasTarget(kind, argument)]


def test_lines_continue_after_white_space_and_a_backslash_also_over_comments() -> None:
    found = parse_aliases(b"# first\nA: b,\n\n  # between\n\tc,\r\n d\n\nX : y,\\\nz\n")
    assert not found.faults
    assert [(each.line, each.name, [one.argument for one in each.targets]) for each in found.aliases] == [
        (2, b"a", [b"b", b"c", b"d"]),
        (8, b"x", [b"y", b"z"]),
    ]


def test_a_quoted_name_may_hold_what_divides_names() -> None:
    found = parse_aliases(b'"Joe: #1": ann\n')
    assert [each.name for each in found.aliases] == [b"joe: #1"]


@pytest.mark.parametrize(
    ("text", "name", "why"),
    [
        (b"ann bob", b"", "it has no colon after a name"),
        (b" ann: bob", b"", "it begins with white space, and there is no line before that it could continue"),
        (b": bob", b"", "it has no name"),
        (b"a@b: bob", b"", "the name has a domain; control/virtualdomains is for that"),
        (b"a:", b"a", "it has no target"),
        (b"a: ,", b"a", "it has no target"),
        (b"a: b c", b"a", "white space in an address; a comma divides two of them"),
        (b'a: "b', b"a", "a quotation mark is not closed"),
        (b"a: (b", b"a", "a parenthesis is not closed"),
        (b"a: <b", b"a", "the angle brackets are not those of one address"),
        (b"a: <b> c", b"a", "the angle brackets are not those of one address"),
        (b"a: b@", b"a", "an address without a user or a domain"),
        (b"a: :fail:", b"a", "it is neither an address nor :include:"),
        (b"a: error:nouser", b"a", "it is no address"),
        (b"a: :include:list", b"a", "the path of :include: does not begin with a slash"),
        (b'a: "|"', b"a", "the command is empty"),
        (b"a: b\0c", b"a", "it holds a NUL byte"),
        (b"a: " + b"x" * 1003, b"a", "an address with over 1002 bytes"),
    ],
)
def test_what_is_wrong_is_named_with_its_line_and_the_rest_is_used(text: bytes, name: bytes, why: str) -> None:
    found = parse_aliases(text + b"\nlast: one\n")
    assert found.faults == [Fault(1, name, why)]
    assert [each.name for each in found.aliases] == [b"last"]


def test_of_two_entries_with_one_name_the_first_counts() -> None:
    found = parse_aliases(b"a: b\nA: c\n")
    assert [each.targets[0].argument for each in found.aliases] == [b"b"]
    assert found.faults == [Fault(2, b"a", "line 1 has this name too, and only that one counts")]


def test_an_included_file_has_addresses_on_lines_and_between_commas_and_nothing_else() -> None:
    members, faults = parse_include(b"# all\nann, bob\n  carl@far.example (c)\n|rm\n/etc/x\n")
    assert [each.argument for each in members] == [b"ann", b"bob", b"carl@far.example"]
    assert faults == [
        (4, "a program is not allowed in an included file"),
        (5, "a path is not allowed in an included file"),
    ]


@given(
    st.dictionaries(NAME, st.lists(ONE, min_size=1, max_size=4), max_size=6), st.sampled_from([b", ", b",\n\t", b" ,"])
)
def test_names_and_addresses_come_back_as_they_were_written(entries: dict[bytes, list[bytes]], comma: bytes) -> None:
    data = b"".join(b"%s: %s\n" % (name, comma.join(each)) for name, each in entries.items())
    found = parse_aliases(data)
    assert not found.faults
    assert {each.name: [one.argument for one in each.targets] for each in found.aliases} == entries


@given(st.binary(min_size=1, max_size=30).filter(lambda text: b"\0" not in text and b"\n" not in text))
def test_a_quoted_command_comes_back_as_it_was(command: bytes) -> None:
    quoted = b'"|' + command.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
    if command.strip(b" \t\r\v\f"):
        assert targets(quoted) == [AliasTarget(PROGRAM, command.strip(b" \t\r\v\f"))]


@given(st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join))
def test_any_bytes_are_entries_and_faults(data: bytes) -> None:
    found = parse_aliases(data)
    lines = data.count(b"\n") + 1
    assert all(0 < each.line <= lines and each.name and each.targets for each in found.aliases)
    assert all(0 < each.line <= lines and each.why for each in found.faults)
    assert len({each.name for each in found.aliases}) == len(found.aliases)
    for alias in found.aliases:
        for target in alias.targets:
            assert target.argument and b"\n" not in target.argument and b"\0" not in target.argument
    parse_include(data)
