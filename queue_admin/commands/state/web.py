"""queuectl web: a page about the suite for a browser. Reads only."""

import sys

import click

from queue_admin.home.chosen import home_of
from queue_admin.home.own_service import own_service_options, write_own_service
from queue_admin.system_accounts import be_owner
from queue_base.queue.layout import open_layout


@click.command("web")
@click.option("--listen", default="127.0.0.1:8080", metavar="ADDR:PORT", help="Default 127.0.0.1:8080.")
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="A name that it may be asked by; repeatable.")
@own_service_options
@click.pass_context
def command(
    context: click.Context, listen: str, hosts: tuple[str, ...], service: str | None, kind: str, force: bool
) -> None:
    """Show the queue and its daemons to a browser, until stopped.

    The page has live figures, plots of the last hours since this command started, destinations, the senders and domains
    with the most messages, a search, and what `queuectl show` tells of a message. It changes nothing. Of several queues
    the first page shows all, and each has its own pages.

    It knows no passwords, and whoever reaches it reads all addresses: listen on 127.0.0.1, and reach it through
    `ssh -L` or a server in front that asks for one. That server's name is to be given by --host, because requests for
    other names than localhost and addresses are refused.

    \b
    Examples:
      queuectl web
      queuectl web --listen 127.0.0.1:9000 --host mail.example.org
      queuectl web --service /etc/systemd/system --kind systemd
    """
    # Imported here, because they take long to load, and before be_owner, because perhaps only root can read them.
    from queue_admin.web.page_server import PageServer, serve, take_address
    from queue_admin.web.status_site import SeveralSites, StatusSite

    where = take_address(listen)
    home = home_of(context)
    if service is not None:
        names = [word for host in hosts for word in ("--host", host)]
        write_own_service(home, ("web", "--listen", listen, *names), service, kind, force)
        return
    be_owner(home)
    if home.is_chosen:
        open_layout(home.queue)
    site = StatusSite(home) if home.is_chosen else SeveralSites(home)
    server = PageServer("queuectl", where, site.answer, hosts)
    site.start()
    print(f"queuectl: listening at {server.url}", file=sys.stderr, flush=True)
    serve(server)
