"""Topics: make, list, describe, alter, grow, trim and delete them."""

from typing import Annotated, Final, TypeAlias

import typer

from dray.cli.asking._altering import DeleteOptions, SetOptions, alter
from dray.cli.asking._completing import topics_like
from dray.cli.asking._connecting import (
    Bootstrap,
    DryRun,
    Profile,
    Yes,
    ask,
    confirm,
    given,
    pairs,
    tell_dry_run,
)
from dray.cli.tables import TableFormat, TableOption, facts, show
from dray.kafka_client.cluster import Cluster, TopicPartition
from dray.kafka_client.configs import ConfigOwner
from dray.kafka_client.places import FORMS, Extent, find, parse_target, what_they_hold
from dray.kafka_client.topics import (
    BROKERS_DEFAULT,
    TopicDescription,
    add_partitions,
    count_partitions,
    create_topic,
    delete_records,
    delete_topic,
    describe_topic,
    list_topics,
    places_of,
)

app: Final = typer.Typer(no_args_is_help=True)

TopicName: TypeAlias = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The name of the topic.", autocompletion=topics_like)
]


@app.command("list")
def list_command(
    internal: Annotated[bool, typer.Option("--internal", help="Also those that brokers keep for themselves.")] = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """The topics of the cluster."""
    found = ask(bootstrap, profile, lambda cluster: list_topics(cluster, internal=internal))
    topics = [
        {"topic": one.topic, "partitions": one.partitions, "replication": one.replication, "internal": one.internal}
        for one in found
    ]
    rows = [(one.topic, one.partitions, one.replication) for one in found]
    show(form, {"topics": topics}, ("TOPIC", "PARTITIONS", "REPLICATION"), rows)


@app.command("describe")
def describe_command(
    topic: TopicName, bootstrap: Bootstrap = None, profile: Profile = None, form: TableOption = TableFormat.TEXT
) -> None:
    """Partitions of a topic, what they hold, and the configs that were set for it."""
    view = ask(bootstrap, profile, lambda cluster: describe_topic(cluster, topic))
    if form is TableFormat.TEXT:
        held = [one.held for one in view.partitions if one.held is not None]
        own = {row.name: row.value for row in view.configs or () if row.own}
        facts(
            {
                "topic": view.topic,
                "id": view.id,
                "partitions": len(view.partitions),
                "replication": view.replication,
                "records": sum(one.end - one.start for one in held),
            }
            | own
        )
        typer.echo()
    rows = [
        (
            one.partition,
            one.leader,
            ",".join(map(str, one.replicas)),
            ",".join(map(str, one.in_sync)),
            one.held.start if one.held else None,
            one.held.end if one.held else None,
        )
        for one in view.partitions
    ]
    show(form, _document(view), ("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "START", "END"), rows)


@app.command("create")
def create_command(
    topic: TopicName,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, help="How many partitions.", show_default="the broker decides"),
    ] = None,
    replication: Annotated[
        int | None,
        typer.Option("--replication", "-r", min=1, help="How many copies.", show_default="the broker decides"),
    ] = None,
    configs: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="KEY=VALUE", help="A config of the topic; as often as needed."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="A topic of this name is as good; it stays as it is.")
    ] = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Make a topic."""
    wanted = pairs("--config", configs)
    made = ask(
        bootstrap,
        profile,
        lambda cluster: create_topic(
            cluster,
            topic,
            partitions=partitions or BROKERS_DEFAULT,
            replication=replication or BROKERS_DEFAULT,
            configs=wanted,
            only_check=dry_run,
            if_not_exists=if_not_exists,
        ),
    )
    document = {
        "topic": topic,
        "dry_run": dry_run,
        "created": made.created,
        "partitions": made.partitions,
        "replication": made.replication,
    }
    rows = [(topic, made.partitions, made.replication, "yes" if made.created else "no")]
    show(form, document, ("TOPIC", "PARTITIONS", "REPLICATION", "CREATED"), rows)
    tell_dry_run(dry_run, form)


@app.command("alter")
def alter_command(
    topic: TopicName,
    sets: SetOptions = None,
    deletes: DeleteOptions = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Change configs of a topic; the others stay as they are."""
    alter(ConfigOwner.TOPIC, topic, sets, deletes, dry_run=dry_run, bootstrap=bootstrap, profile=profile, form=form)


@app.command("add-partitions")
def add_partitions_command(
    topic: TopicName,
    add: Annotated[int | None, typer.Option("--add", min=1, help="So many more.")] = None,
    total: Annotated[int | None, typer.Option("--total", min=1, help="So many in all.")] = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Let a topic have more partitions; keys may belong to another one from then on, and no way leads back."""
    if (add is None) == (total is None):
        raise typer.BadParameter("say --add N or --total N, one of them", param_hint="--add")

    async def grow(cluster: Cluster) -> tuple[int, int]:
        before = await count_partitions(cluster, topic)
        after = total if total is not None else before + (add or 0)
        await add_partitions(cluster, topic, after, only_check=dry_run)
        return before, after

    before, after = ask(bootstrap, profile, grow)
    show(
        form,
        {"topic": topic, "dry_run": dry_run, "from": before, "to": after},
        ("TOPIC", "FROM", "TO"),
        [(topic, before, after)],
    )
    tell_dry_run(dry_run, form)


@app.command("trim")
def trim_command(
    topic: TopicName,
    before: Annotated[str, typer.Option("--before", metavar="PLACE", help=f"Drop what is before this place: {FORMS}.")],
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition; as often as needed.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Delete the oldest records of a topic."""
    target = given("--before", parse_target, before)

    async def plan(cluster: Cluster) -> list[tuple[TopicPartition, Extent, int]]:
        held = await what_they_hold(cluster, await places_of(cluster, topic, partitions or ()))
        found = await find(cluster, held, target)
        return [(place, held[place], found[place]) for place in sorted(found)]

    async def carry_out(cluster: Cluster) -> dict[TopicPartition, int]:
        await places_of(cluster, topic)  # who leads them now
        return await delete_records(cluster, {place: to for place, held, to in planned if to > held.start})

    planned = ask(bootstrap, profile, plan)
    records = sum(to - held.start for _, held, to in planned)
    begins = {place: to for place, _, to in planned}
    if not dry_run and records:
        confirm(topic, yes, f"delete {records} records of {topic}")
        begins |= ask(bootstrap, profile, carry_out)
    document = {
        "topic": topic,
        "dry_run": dry_run,
        "partitions": [
            {"partition": place.partition, "from": held.start, "to": begins[place], "end": held.end}
            for place, held, _ in planned
        ],
    }
    rows = [(place.partition, held.start, begins[place], held.end) for place, held, _ in planned]
    show(form, document, ("PARTITION", "FROM", "TO", "END"), rows)
    tell_dry_run(dry_run, form)


@app.command("delete")
def delete_command(
    topic: TopicName,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Delete a topic and all its records."""

    async def count(cluster: Cluster) -> tuple[int, int]:
        held = await what_they_hold(cluster, await places_of(cluster, topic))
        return len(held), sum(one.end - one.start for one in held.values())

    partitions, records = ask(bootstrap, profile, count)
    if not dry_run:
        confirm(topic, yes, f"delete {topic} with {records} records in {partitions} partitions")
        ask(bootstrap, profile, lambda cluster: delete_topic(cluster, topic))
    document = {"topic": topic, "dry_run": dry_run, "partitions": partitions, "records": records}
    show(form, document, ("TOPIC", "PARTITIONS", "RECORDS"), [(topic, partitions, records)])
    tell_dry_run(dry_run, form)


def _document(view: TopicDescription) -> dict[str, object]:
    return {
        "topic": view.topic,
        "id": view.id,
        "internal": view.internal,
        "replication": view.replication,
        "partitions": [
            {
                "partition": one.partition,
                "leader": one.leader,
                "replicas": one.replicas,
                "in_sync": one.in_sync,
                "start": one.held.start if one.held else None,
                "end": one.held.end if one.held else None,
            }
            for one in view.partitions
        ],
        "configs": None
        if view.configs is None
        else [{"name": row.name, "value": row.value, "source": row.source} for row in view.configs],
    }
