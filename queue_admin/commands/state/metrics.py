"""queuectl metrics: the figures of a running suite for Prometheus, once or to whoever scrapes it. Reads only."""

import sys
from importlib.resources import files

import click

from queue_admin.home.chosen import home_of
from queue_admin.home.own_service import own_service_options, write_own_service
from queue_admin.messages.admin_client import may_ask_counts_alone
from queue_admin.system_accounts import be_owner
from queue_base.errors import Usage
from queue_base.queue.layout import open_layout
from queue_base.suite_version import suite_version

ONE_WALK = 1.0  # Seconds for the walk over the queue, if the metrics are printed once.
PARTS = {"dashboard": "grafana.json", "alerts": "alerts.yml"}


@click.command("metrics")
@click.option("--listen", metavar="ADDR:PORT", help="Answer scrapes at http://ADDR:PORT/metrics until stopped.")
@click.option(
    "--format", "form", type=click.Choice(["openmetrics", "prometheus"]), default="prometheus",
    help="Default prometheus, which all tools read; a scraper chooses by Accept.",
)  # fmt: skip
@click.option("--print", "part", type=click.Choice(list(PARTS)), help="Print the Grafana dashboard or the alert rules.")
@own_service_options
@click.pass_context
def command(
    context: click.Context,
    listen: str | None,
    form: str,
    part: str | None,
    service: str | None,
    kind: str,
    force: bool,
) -> None:
    """Print metrics of the queue and its daemons in the text format of Prometheus.

    queue-send is asked once for what it has counted; no message is looked at. Only the oldest age and the number of
    unclassified messages come from a walk over the queue: with --listen a slow one in the background, otherwise one
    that ends after a second, and if it has not come far enough they are left out. If queue-send does not run,
    queue_up is 0, and the rest that needs it is left out. Of several queues, all are asked, and what is known of each
    has the label queue.

    An account that may search the directory monitor/ of the home, and may not read the queue, gets what has no name of
    a destination.

    \b
    Examples:
      queuectl metrics
      queuectl metrics --listen 127.0.0.1:9125
      queuectl metrics --listen 127.0.0.1:9125 --service /etc/sv/queue-metrics --kind runit
      queuectl metrics --print alerts >/etc/prometheus/queue-suite.yml
    """
    if part is not None:
        sys.stdout.write(files("queue_admin.metrics").joinpath(PARTS[part]).read_text("utf-8"))
        return
    # Imported here, because they take long to load, and before be_owner, because perhaps only root can read them.
    from queue_admin.metrics.exporter import Exporter, expose
    from queue_admin.metrics.oldest_walk import walk_within
    from queue_admin.metrics.reading import take_reading, take_shared
    from queue_admin.web.page_server import PageServer, serve, take_address

    where = take_address(listen) if listen is not None else None
    home = home_of(context)
    if service is not None:
        if listen is None:
            raise Usage("--service needs --listen ADDR:PORT")
        write_own_service(home, ("metrics", "--listen", listen), service, kind, force)
        return
    be_owner(home)
    if home.is_chosen and not may_ask_counts_alone(home):
        open_layout(home.queue)
    if where is None:
        readings = {one.name: take_reading(one, walk_within(one, ONE_WALK)) for one in home.each()}
        sys.stdout.write(expose(readings, take_shared(home), suite_version(), form == "openmetrics").decode())
        return
    exporter = Exporter(home, suite_version())
    server = PageServer("queuectl", where, exporter.answer, None)
    exporter.start()
    print(f"queuectl: listening at {server.url}metrics", file=sys.stderr, flush=True)
    serve(server)
