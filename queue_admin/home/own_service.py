"""The service of a command of queuectl that serves until it is stopped, and the options that services have."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from queue_admin.home.service import DAEMONTOOLS, KINDS, find_service, write_service
from queue_admin.system_accounts import myself
from queue_base.accounts import queue_owner
from queue_base.home import Home
from queue_base.shell_completion import complete_directory

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

kind_option = click.option(
    "--kind", type=click.Choice(KINDS), default=DAEMONTOOLS, help="The supervisor; default daemontools."
)
force_option = click.option("--force", is_flag=True, help="Replace scripts and units of the service that differ.")
_service_option = click.option(
    "--service", metavar="DIR", shell_complete=complete_directory,
    help="Only write a service directory, or systemd's unit, that runs this.",
)  # fmt: skip


def own_service_options(decorated: Decorated) -> Decorated:
    """Give a command the options of a service of its own."""
    return _service_option(kind_option(force_option(decorated)))


def write_own_service(home: Home, words: tuple[str, ...], directory: str, kind: str, force: bool) -> None:
    """Write the service that runs a command of queuectl; print the paths written. Raises Permanent, Temporary."""
    # The queue that was chosen.
    service = find_service(home, queue_owner(home), None, part=home.name, words=words)
    for path in write_service(service, os.path.abspath(directory), kind, myself(), force):
        print(f"wrote {path}")
