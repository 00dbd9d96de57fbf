"""Two hostile users at once: an honest one is served all the same, and queue-intake stays small and becomes idle."""

import os
import re
import subprocess
import sys
import time

import pytest

from support.inject.injectors import ROOT, USER, queued, shared_home
from support.intake.intake_daemon import IntakeDaemon
from support.processes.suite import wait_until

# Becomes a user, opens as many connections as it gets, and does something bad with each, until it is killed.
HOSTILE = r"""
import os, select, socket, sys
os.setgroups([]), os.setgid(int(sys.argv[1])), os.setuid(int(sys.argv[1]))
def net(data): return b"%d:%s," % (len(data), data)
def mail(text, recipients): return net(b"\n" + text) + net(b"a") + net(b"".join(map(net, recipients)))
endless = [
    mail(b"", []) * 3000,                                    # empty messages
    mail(b"x", [b"b"]) * 300,                                # small ones
    mail(b"x", [b"r" * 100_000] * 100),                      # recipients that are too long
    mail(b"x", [b"a@b.example"] * 20_000),                  # many of them
    mail(b"x", [b"\0"] * 990) * 5,                           # invalid ones
    b"7:+pieces," + b"1:\n," * 5000 + b"0:,0:,3:0:,,",       # empty pieces
    b"7:+pieces,1:!," * 3000,                                # messages that are given up
    b"999999999999:\n" + b"y" * 100_000,                     # a huge message
    b"1:\n,0:,999999999:" + b"1:a," * 20_000,                # huge recipients
    mail(b"z" * 100_000, [b"b"]),
]
once = [b"", b"1", b"900:\nhalf a message", b"7:+pieces,", mail(b"x" * 5000, [b"b"])[:-3], b"GET / HTTP/1.0\r\n\r\n"]
deaf, reading, kept = {}, {}, []
for number in range(24):
    client = socket.socket(socket.AF_UNIX)
    try:
        client.connect(sys.argv[2])
        client.setblocking(False)
        if number % 2:
            client.send(once[number // 2 % len(once)])
            kept.append(client)
        else:
            data = endless[number // 2 % len(endless)]
            (deaf if number % 4 else reading)[client] = [data, 0]
    except OSError:
        client.close()
print("begun", flush=True)
while True:
    try:
        client = socket.socket(socket.AF_UNIX)
        client.connect(sys.argv[2])
        client.send(once[len(kept) % len(once)])
        client.close()
    except OSError:
        pass
    readable, writable, _ = select.select(list(reading), [*reading, *deaf], [], 0.1)
    for client in readable + writable:
        group = reading if client in reading else deaf
        if client not in group:
            continue
        data, at = group[client]
        try:
            if client in readable and not client.recv(65536):
                raise OSError
            group[client][1] = (at + client.send(data[at : at + 65536])) % len(data)
        except BlockingIOError:
            pass
        except OSError:
            del group[client]
            client.close()
"""
# Becomes a user, and sends messages one after the other; prints the seconds of each, and the answer.
HONEST = r"""
import os, socket, sys, time
os.setgroups([]), os.setgid(int(sys.argv[1])), os.setuid(int(sys.argv[1]))
for number in range(int(sys.argv[3])):
    begun = time.monotonic()
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(sys.argv[2])
        client.sendall(b"9:\nhonest %d,3:ann,6:3:bob,," % number)
        answer = client.recv(4096).decode()
    print(time.monotonic() - begun, answer, flush=True)
"""
COUNT = 4
LINE = re.compile(r"([0-9.e-]+) [0-9]+:Kok [0-9]+ qp [0-9]+ ([0-9]+)-[0-9a-z]+,\n")


def processor_seconds(process: int) -> float:
    """Return what a process has used so far."""
    with open(f"/proc/{process}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def descriptors(process: int) -> int:
    """Return how many it has open, without the directories of the queue, which stay open between commits."""
    place = f"/proc/{process}/fd"
    return sum(not os.path.isdir(f"{place}/{each}") for each in os.listdir(place))


@pytest.mark.skipif(not ROOT, reason="needs root, to be other users")
def test_an_honest_user_is_served_beside_two_hostile_ones_and_what_they_took_is_given_back() -> None:
    with shared_home() as home, IntakeDaemon(home) as intake:
        number = intake.process.pid
        memory, opened = intake.memory(), descriptors(number)
        words = [sys.executable, "-c", HOSTILE]
        place = f"{home.queue}/intake/socket"
        hostile = [subprocess.Popen([*words, str(USER + more), place], stdout=subprocess.PIPE) for more in (1, 2)]
        found, peak = [], memory
        try:
            for process in hostile:
                assert process.stdout and process.stdout.readline() == b"begun\n"
            command = [sys.executable, "-c", HONEST, str(USER), place, str(COUNT)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as honest:
                assert honest.stdout
                for line in honest.stdout:
                    found.append(LINE.fullmatch(line))
                    peak = max(peak, intake.memory())
            assert all(process.poll() is None for process in hostile)
        finally:
            for process in hostile:
                process.kill()
                process.wait(60)
                if process.stdout:
                    process.stdout.close()
        texts = {each.number: each.message for each in queued(home)}
        assert [texts[int(each[2])] for each in found if each] == [b"honest %d" % count for count in range(COUNT)]
        assert sorted(float(each[1]) for each in found if each)[COUNT // 2] < 5, found
        assert peak - memory < 200_000_000, f"{peak} bytes, {memory} before"
        wait_until(lambda: descriptors(number) <= opened, why="what the hostile users had open to be closed")
        used = processor_seconds(number)
        time.sleep(0.5)
        assert processor_seconds(number) - used < 0.2, "it is not idle"
