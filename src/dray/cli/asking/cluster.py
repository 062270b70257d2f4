"""The cluster: its brokers, and who they are."""

import typer

from dray.cli.asking._connecting import Bootstrap, Profile, ask
from dray.cli.tables import TableFormat, TableOption, facts, show
from dray.kafka_client.cluster import Cluster


def command(bootstrap: Bootstrap = None, profile: Profile = None, form: TableOption = TableFormat.TEXT) -> None:
    """The brokers of the cluster."""

    async def look(cluster: Cluster) -> Cluster:
        return cluster

    found = ask(bootstrap, profile, look)
    brokers = list(found.brokers.values())
    if form is TableFormat.TEXT:
        facts({"cluster": found.id, "brokers": len(brokers), "controller": found.controller})
        typer.echo()
    document = {
        "cluster": found.id,
        "controller": found.controller,
        "brokers": [{"broker": one.node, "host": one.host, "port": one.port, "rack": one.rack} for one in brokers],
    }
    rows = [(one.node, one.host, one.port, one.rack) for one in brokers]
    show(form, document, ("BROKER", "HOST", "PORT", "RACK"), rows)
