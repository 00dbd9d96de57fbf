"""What a process has counted since its start. It is told by the lines of the log, so both say the same."""

from queue_wire.admin.smtpd_status import COUNTED, ENDS, VERBS, VERDICTS

# By their first words.
_AT_VERB = {verb.split(" ")[0].encode(): verb for verb in VERBS}
_AT_END = {end.replace(" ", "_").encode(): end for end in ENDS}
_VERDICTS = {verdict.encode(): f"filter-{verdict}" for verdict in VERDICTS}


class ServerCounters:
    """Counts by the names of COUNTED."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[str, int] = dict.fromkeys(COUNTED, 0)

    def take(self, lines: list[bytes]) -> None:
        """Count lines of sessions (queue_smtpd.sessions.session_log)."""
        counts = self.counts
        for line in lines:
            words = line.split(b" ")
            if words[0] != b"smtp" or len(words) < 3:
                # It is about the process.
                continue
            event = words[2]
            if event == b"queued":
                counts["messages"] += 1
                counts["bytes"] += int(words[5])
                counts["recipients"] += int(words[7])
            elif event == b"refused":
                self._refused(words[3].removesuffix(b":"), words[-3])
            elif event == b"connect":
                counts["connections"] += 1
            elif event == b"end":
                end = _AT_END.get(words[3].removesuffix(b":"), "refused")
                counts[f"end-{end}"] += 1
            elif event == b"tls":
                counts["tls-failed" if words[3] == b"failed:" else "tls"] += 1
            elif event == b"auth":
                counts["auth"] += 1
            elif event == b"dropped":
                counts["dropped"] += 1
            elif event == b"discarded":
                counts["discarded"] += 1
            elif event == b"filter" and len(words) > 4:
                verdict = _VERDICTS.get(words[4].removesuffix(b":"))
                if verdict is not None:
                    counts[verdict] += 1

    def _refused(self, verb: bytes, reply: bytes) -> None:
        digit = "4" if reply[:1] == b"4" else "5"
        name = _AT_VERB.get(verb, "other")
        self.counts[f"refused-{name}-{digit}"] += 1
        if name == "AUTH" and digit == "5":
            self.counts["auth-failed"] += 1
