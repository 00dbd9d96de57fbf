"""One try at those recipients of one message that are left on one channel, and its pieces. Pure."""

Recipient = tuple[int, bytes]  # offset of its record in local/ or remote/, address


class Attempt:
    """A message in the active set. birth and expires are in seconds; recipients are counted, not kept.

    `queued` wait in a destination, `flying` are in flight, `deferred` are to be tried again, and `aside`
    were not tried because their destination had no room. `left` are not done; whoever marks them counts it.
    `rest` is the offset from which on there are recipients that were not loaded, None where these are all; `size` is
    that of their file, and `born` the birth as the disk has it. `due` is when it was to be tried, by the disk, `opened`
    when it was loaded; it is `loading` as long as more of its recipients are to be placed. `placed` are the offsets of
    those that have been, where the message has several groups.
    """

    __slots__ = (
        "aside", "birth", "born", "deferred", "due", "expires", "flying", "left", "loading", "message", "opened",
        "placed", "queued", "rest", "sender", "size", "withdrawn",
    )  # fmt: skip

    def __init__(
        self, message: int, sender: bytes, birth: int, expires: int, rest: int | None = None, due: int = 0
    ) -> None:
        self.message = message
        self.sender = sender
        self.birth = birth
        self.expires = expires
        self.queued = 0
        self.flying = 0
        self.deferred = 0
        self.left = 0
        self.aside: bytes | None = None
        self.rest = rest
        self.size = 0
        self.born = birth
        self.due = due
        self.opened = 0.0
        self.loading = False
        self.placed: list[int] = []
        self.withdrawn = False

    @property
    def over(self) -> bool:
        """Whether nothing of it is queued or in flight, or about to be."""
        return not (self.queued or self.flying or self.loading)


class Group:
    """Recipients of one message with the same nexthop: one job, or several where they are many.

    `started` and `pace` are of the job: when it was started, and as what its destination counted then.
    """

    __slots__ = ("attempt", "nexthop", "pace", "recipients", "started")

    def __init__(self, attempt: Attempt, nexthop: bytes, recipients: list[Recipient]) -> None:
        self.attempt = attempt
        self.nexthop = nexthop
        self.recipients = recipients
        self.started = 0.0
        self.pace = 0
