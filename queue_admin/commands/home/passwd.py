"""queuectl passwd: the users of queue-smtpd's AUTH, and their passwords."""

import os
import sys

import click

from queue_admin.home.chosen import home_of
from queue_admin.printable import visible
from queue_admin.settings.control_change import edit_control
from queue_base.control import read_parsed, unable_to_parse
from queue_base.errors import Failure, NotFound, Usage
from queue_base.home import Home
from queue_smtp.auth_server import PASSWORD_MAX, make_verifier
from queue_wire.control.smtpdusers import (
    Proof,
    SharedSecret,
    UserPasswords,
    Verifier,
    check_user,
    pack_users,
    unpack_users,
)
from queue_wire.format_error import FormatError

FILE = "smtpdusers"
_SALT_BYTES = 16
_SECRET_BYTES = 32


@click.command("passwd")
@click.argument("user", metavar="[USER]", required=False)
@click.option("--cram-md5", is_flag=True, help="Keep the password itself, for fetchmail and ATRN.")
@click.option("--delete", is_flag=True, help="Remove the user.")
@click.option("--list", "listed", is_flag=True, help="List all users.")
@click.pass_context
def command(context: click.Context, user: str | None, cram_md5: bool, delete: bool, listed: bool) -> None:
    """Set the password with which a user authenticates to queue-smtpd (SMTP AUTH).

    The password is asked for twice on a terminal; otherwise it is the first line of stdin. control/smtpdusers keeps a
    verifier of SCRAM-SHA-256 and not the password. It is in force within two seconds.

    With --cram-md5 the file keeps the password itself, which CRAM-MD5 needs. That mechanism is for hosts that take mail
    with ATRN, such as fetchmail's; SCRAM-SHA-256 is offered to nobody while a user has such a password.

    Exit 1: with --delete, there is no such user.

    \b
    Examples:
      queuectl passwd joe@example.org
      pwgen 20 1 | tee joe.txt | queuectl passwd joe@example.org
      queuectl passwd --delete joe@example.org
    """
    home = home_of(context)
    if listed:
        if user is not None or delete or cram_md5:
            raise Usage("--list stands alone")
        found = read_parsed(home, FILE, unpack_users)
        for each in sorted(found.users if found is not None else ()):
            print(visible(each))
        return
    if user is None:
        raise Usage("no user; --list lists all")
    name = os.fsencode(user)
    try:
        check_user(name)
    except FormatError as error:
        raise Usage(f"unable to use this name: {error}") from error
    if delete and cram_md5:
        raise Usage("--delete and --cram-md5 exclude each other")
    if delete:
        _delete(home, name)
        return
    password = read_password(user)
    _set(home, name, SharedSecret(password) if cram_md5 else _make_verifier(password))


def read_password(user: str) -> bytes:
    """Return the password from the terminal, asked for twice, or from stdin. Raises Usage."""
    if sys.stdin is not None and sys.stdin.isatty():
        typed: str = click.prompt(f"Password for {visible(os.fsencode(user))}", hide_input=True, err=True,
                                  confirmation_prompt="The same again")  # fmt: skip
        password = os.fsencode(typed)
    else:
        password = b"" if sys.stdin is None else sys.stdin.buffer.readline(PASSWORD_MAX + 3)
        password = password.removesuffix(b"\n").removesuffix(b"\r")
    if not password or len(password) > PASSWORD_MAX or b"\0" in password:
        raise Usage(f"unable to use the password: it is empty, has a NUL, or more than {PASSWORD_MAX} bytes")
    return password


def _make_verifier(password: bytes) -> Verifier:
    try:
        return make_verifier(password, os.urandom(_SALT_BYTES))
    except FormatError:
        # `from None`: nothing of the password may be shown.
        raise Usage("unable to use the password: it is not UTF-8 that RFC 4013 (SASLprep) allows") from None


def _set(home: Home, user: bytes, proof: Proof) -> None:
    def add(old: bytes | None) -> bytes:
        found = _unpack(home, old)
        secret = found.secret or os.urandom(_SECRET_BYTES)
        return pack_users(UserPasswords({**found.users, user: proof}, secret))

    edit_control(home, FILE, add)
    print(f"{visible(user)} has a new password")


def _delete(home: Home, user: bytes) -> None:
    """Remove a user. Raises NotFound."""
    missing = False

    def remove(old: bytes | None) -> bytes | None:
        nonlocal missing
        found = _unpack(home, old)
        missing = user not in found.users
        if missing:
            return old
        return pack_users(found._replace(users={name: each for name, each in found.users.items() if name != user}))

    edit_control(home, FILE, remove)
    if missing:
        raise NotFound(f"unable to find user {visible(user)}: queuectl passwd --list lists all")
    print(f"{visible(user)} is removed")


def _unpack(home: Home, data: bytes | None) -> UserPasswords:
    try:
        return unpack_users(data or b"")
    except FormatError as error:
        failure: Failure = unable_to_parse(home, FILE, error)
        raise failure from None
