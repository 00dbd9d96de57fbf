"""What is looked up about a stranger that names a recipient: DNS lists."""

from queue_smtp import server_replies as replies
from queue_smtp.server_replies import ServerReply
from queue_smtpd.config import SmtpdConfig
from queue_smtpd.log_writer import LogWriter
from queue_smtpd.session import StrangerWanted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from queue_smtpd.strangers.list_lookups import ListLookups


class StrangerChecks:
    """The checks of this process."""

    def __init__(self, log: LogWriter) -> None:
        self._log = log
        self._lists: ListLookups | None = None

    def configure(self, config: SmtpdConfig) -> None:
        """Check by these control files from now on."""
        if self._lists is None and config.dnslists:
            # Imported here, because dnspython takes a tenth of a second, and memory.
            from queue_smtpd.strangers.list_lookups import ListLookups

            self._lists = ListLookups(self._log)
        if self._lists is not None:
            self._lists.configure(config.dnslists, config.resolver)

    async def judge(self, wanted: StrangerWanted) -> ServerReply | None:
        """Return the reply that refuses a recipient, None if the stranger may send to it."""
        if wanted.lists and self._lists is not None:
            text = await self._lists.find(wanted.address)
            if text is not None:
                return replies.LISTED._replace(text=text)
        return None
