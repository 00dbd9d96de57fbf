"""The mail that is stored for on-demand domains: reads it, and asks queue-ondemand to do something with it."""

import os
from collections.abc import Iterator, Sequence

from queue_base.daemon.unix_sockets import connect_to
from queue_base.durable import read_file
from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_wire.admin.ondemand_socket import (
    EMPTY,
    FLUSH,
    REQUEST_MOST,
    SOCKET,
    UNKNOWN,
    RunAnswer,
    RunRequest,
    pack_run_request,
    unpack_run_answer,
)
from queue_wire.control.ondemand import is_domain_name
from queue_wire.files.cluster import CLUSTER_MOST, SUFFIX, StoredRecipient, cluster_number, unpack_cluster
from queue_wire.format_error import FormatError
from queue_wire.pipes.framing import NetstringReader

SECONDS = 30.0


def stored_domains(home: Home) -> list[bytes]:
    """Return the domains that have stored mail. Raises Temporary."""
    path = f"{home.queue}/ondemand"
    try:
        names = sorted(os.listdir(path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Temporary(f"unable to read {path}: {reason(error)}") from error
    return [name.encode() for name in names if is_domain_name(name.encode("utf-8", "replace"))]


def read_stored(home: Home, domain: bytes) -> Iterator[StoredRecipient]:
    """Yield what is stored for a domain, in order. Reads only; raises Temporary.

    What is delivered meanwhile may be left out.
    """
    directory = f"{home.queue}/ondemand/{os.fsdecode(domain)}"
    try:
        numbers = sorted(number for name in os.listdir(directory) if (number := cluster_number(name)))
    except FileNotFoundError:
        return
    except OSError as error:
        raise Temporary(f"unable to read {directory}: {reason(error)}") from error
    for number in numbers:
        path = f"{directory}/{number}{SUFFIX}"
        try:
            found = unpack_cluster(read_file(path, CLUSTER_MOST))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise Temporary(f"unable to read {path}: {reason(error)}") from error
        for record in found.pending:
            yield record.stored


def flush_domains(home: Home, domains: Sequence[bytes]) -> tuple[int, list[bytes]]:
    """Have queue-ondemand deliver what is stored for domains; return for how many it does, and those that have ATRN.

    Raises Temporary.
    """
    answers = ask_for_runs(home, [RunRequest(FLUSH, domain) for domain in domains])
    waiting = [domain for domain, answer in zip(domains, answers, strict=True) if answer.word == UNKNOWN]
    return sum(answer.word not in (EMPTY, UNKNOWN) for answer in answers), waiting


def ask_for_runs(home: Home, requests: Sequence[RunRequest]) -> list[RunAnswer]:
    """Return the answers of queue-ondemand. Raises Temporary."""
    if not requests:
        return []
    path = f"{home.queue}/{SOCKET}"
    answers = []
    try:
        with connect_to(path) as connection:
            connection.settimeout(SECONDS)
            reader = NetstringReader(REQUEST_MOST)
            for request in requests:
                connection.sendall(pack_run_request(request))
                while (payload := reader.next()) is None:
                    data = connection.recv(REQUEST_MOST)
                    if not data:
                        raise Temporary(f"unable to use {path}: queue-ondemand has closed the connection")
                    reader.feed(data)
                answers.append(unpack_run_answer(payload))
    except OSError as error:
        raise Temporary(f"unable to ask queue-ondemand at {path}: {reason(error)}; start the suite") from error
    except FormatError as error:
        raise Temporary(f"unable to use {path}: {error}") from error
    return answers
