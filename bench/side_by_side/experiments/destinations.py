"""Mail for very many domains, ten messages each: 10 % of them are slow, and 5 % refuse connections.

Each domain has a loopback address of its own, so that it is a destination of its own for both. A slow host answers DATA
after a second. The queue is filled while nothing delivers. The round ends when all mail for fast and slow hosts is
delivered; what is for dead ones stays.
"""

from side_by_side.experiment import COSTS, Experiment, Ground, Measured, Meter
from side_by_side.figures import Figure
from side_by_side.mail import Mail, Routes
from side_by_side.side import DELIVERED, Side
from support.servers.smtp.smtp_sink import SmtpSink

FAST_99 = Figure("99 % of fast hosts' mail", "s")
FAST = Figure("all of fast hosts' mail", "s")
SLOW = Figure("all of slow hosts' mail", "s")
RATE = Figure("delivered", "a second", more_is_better=True)
ATTEMPTS = Figure("attempts for dead hosts", "a message")
EACH = 10
# Of twenty domains these are not fast.
KINDS = {0: "dead", 7: "slow", 14: "slow"}
# Nobody listens at it in a network of our own.
_DEAD_PORT = 9


def make_domains(messages: int) -> list[tuple[str, str]]:
    """Return name and address of the domains."""
    count = max(20, messages // EACH)
    numbers = range(count)
    return [
        (
            f"{KINDS.get(number % 20, 'fast')}{number}.example",
            f"127.{1 + number // 62500}.{number // 250 % 250}.{1 + number % 250}",
        )
        for number in numbers
    ]


def run(ground: Ground, kind: type[Side], messages: int) -> Measured:
    """Make a round."""
    domains = make_domains(messages)
    # Any address of this host's, which has none but loopback's.
    with SmtpSink(keep=False, address="") as fast, SmtpSink("-w", "1", keep=False, address="") as slow:
        ports = {"fast": fast.port, "slow": slow.port, "dead": _DEAD_PORT}
        routes = Routes(fast.port, {name: (address, ports[name[:4]]) for name, address in domains})
        mail = Mail(messages, domains=[name for name, _ in domains])
        left = {"fast": 0, "slow": 0, "dead": 0}
        for recipient in mail.recipients():
            left[recipient.partition("@")[2][:4]] += 1
        whole = dict(left)
        with ground.side(kind, routes) as side:
            side.fill(mail)
            side.count_from_now()
            ground.settle()
            side.start()
            log = side.follow()
            first = log.wait(lambda counts: counts[DELIVERED] > 0)
            meter, attempts = Meter(side), 0
            times: dict[str, float] = {}
            lines = side.follow()

            def look(counts: dict[str, int]) -> bool:
                nonlocal attempts
                for verdict in side.verdicts(lines.read()):
                    host = verdict.recipient.partition("@")[2][:4]
                    if verdict.delivered:
                        left[host] -= 1
                    attempts += host == "dead"
                now = log.times[-1] - first
                if left["fast"] <= whole["fast"] // 100:
                    times.setdefault(FAST_99.name, now)
                for figure, host in ((FAST, "fast"), (SLOW, "slow")):
                    if not left[host]:
                        times.setdefault(figure.name, now)
                return len(times) == 3

            log.wait(look)
            found = meter.stop(messages)
            delivered = whole["fast"] + whole["slow"]
            rate = delivered / max(times.values())
    return Measured({RATE.name: rate, ATTEMPTS.name: attempts / max(1, whole["dead"]), **times, **found})


DESTINATIONS = Experiment(
    "destinations",
    "ten messages a domain; 10 % of the domains are slow, 5 % dead",
    50_000,
    (RATE, FAST_99, FAST, SLOW, ATTEMPTS, *COSTS),
    run,
    traced=1000,
)
