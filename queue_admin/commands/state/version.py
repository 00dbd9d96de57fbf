"""queuectl version: the version of the suite, whether it is compiled, and its Python."""

import json
import platform
from importlib.machinery import EXTENSION_SUFFIXES

import click

from queue_base.suite_version import suite_version
from queue_wire.pipes import job


@click.command("version")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default text.")
def command(form: str) -> None:
    """Show the version, whether the daemons are compiled or pure Python, and the version of Python.

    \b
    Example:
      queuectl version
    """
    number = suite_version()
    # All modules that are compiled are compiled together.
    compiled = job.__file__.endswith(tuple(EXTENSION_SUFFIXES))
    python = platform.python_version()
    if form == "json":
        print(json.dumps({"name": "queue-suite", "version": number, "compiled": compiled, "python": python}))
    else:
        print(f"queue-suite {number}, {'compiled' if compiled else 'pure Python'}, Python {python}")


