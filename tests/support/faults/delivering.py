"""A message that everybody gets: with `classifyafter` it is delivered from its notice, and never classified."""

from collections import Counter
from collections.abc import Iterator

from support.faults.failing import ANN, CLARA, TEXT, clara_has_it
from support.servers.sink import Sink
from support.site import Site
from support.suite import Suite, enqueue


class DeliveredMessage:
    """clara gets it, and two recipients at another host."""

    most_bounces = 0

    def __init__(self, sink: Sink, name: str) -> None:
        self._sink = sink
        self._remote = [b"%d-%s@host.example" % (each, name.encode()) for each in range(2)]

    def begin(self, site: Site, suite: Suite) -> None:
        """Put the message in."""
        assert enqueue(site.home, ANN, [CLARA, *self._remote], TEXT).returncode == 0

    def resume(self, site: Site, suite: Suite) -> None:
        """Nothing: the suite goes on by itself."""

    def judge(self, site: Site, kills: int) -> Iterator[str]:
        """Everybody has it, at most once oftener than there were kills."""
        yield from clara_has_it(site, kills)
        found = Counter(each for taken in self._sink.taken for each in taken.recipients)
        for recipient in self._remote:
            if not 1 <= found[recipient] <= 1 + kills:
                yield f"{recipient.decode()} has {found[recipient]} copies"
