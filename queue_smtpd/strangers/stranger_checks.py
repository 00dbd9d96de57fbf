"""What is looked up about a stranger that names a recipient: DNS lists, then the greylist."""

from queue_base.home import Home
from queue_smtp import server_replies as replies
from queue_smtp.server_replies import ServerReply
from queue_smtpd.config import SmtpdConfig
from queue_smtpd.processes.log_writer import LogWriter
from queue_smtpd.sessions.session import StrangerWanted
from queue_wire.control.registry import DNSLISTS, GREYLIST, RESOLVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from queue_smtpd.strangers.greylist_thread import Greylist
    from queue_smtpd.strangers.list_lookups import ListLookups


class StrangerChecks:
    """The checks of this process."""

    def __init__(self, home: Home, log: LogWriter) -> None:
        self._home = home
        self._log = log
        self._lists: ListLookups | None = None
        self._greylist: Greylist | None = None

    def configure(self, config: SmtpdConfig) -> None:
        """Check by these control files from now on."""
        # Imported here, because dnspython takes a tenth of a second, and memory, and most servers need neither.
        if self._lists is None and config.values[DNSLISTS]:
            from queue_smtpd.strangers.list_lookups import ListLookups

            self._lists = ListLookups(self._log)
        if self._lists is not None:
            self._lists.configure(config.values[DNSLISTS], config.values[RESOLVER])
        greylist = config.values[GREYLIST]
        if self._greylist is None and greylist is not None:
            from queue_smtpd.strangers.greylist_thread import Greylist

            self._greylist = Greylist(self._home, self._log)
        if self._greylist is not None and greylist is not None:
            self._greylist.configure(greylist)

    async def judge(self, wanted: StrangerWanted) -> ServerReply | None:
        """Return the reply that refuses a recipient, None if the stranger may send to it."""
        if wanted.lists and self._lists is not None:
            text = await self._lists.find(wanted.address)
            if text is not None:
                return replies.LISTED._replace(text=text)
        if wanted.greylist and self._greylist is not None:
            wait = await self._greylist.judge(wanted.address, wanted.sender, wanted.recipient)
            if wait:
                return replies.GREYLISTED._replace(text=b"Greylisted; try again in %d seconds" % wait)
        return None
