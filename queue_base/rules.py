"""Reads the control files of classification. Raises Temporary, naming the file, and then nothing has changed."""

from queue_base.control import read_line, read_map, read_me, read_set
from queue_base.home import Home
from queue_wire.control.rewrite import Rules


def read_rules(home: Home) -> Rules:
    """Return the rules in control/: me, envnoathost, locals, percenthack, virtualdomains (qmail-send(8))."""
    me = read_me(home)
    hosts = read_set(home, "locals")
    return Rules(
        envnoathost=read_line(home, "envnoathost", me),
        locals=frozenset([me.lower()]) if hosts is None else hosts,
        percenthack=read_set(home, "percenthack") or frozenset(),
        virtualdomains=read_map(home, "virtualdomains") or {},
    )
