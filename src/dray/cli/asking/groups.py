"""Consumer groups: who reads what, how far behind, and moving them."""

from typing import Annotated, Final, TypeAlias

import typer

from dray.cli.asking._completing import groups_like
from dray.cli.asking._connecting import Bootstrap, DryRun, Profile, Yes, ask, confirm, given, tell_dry_run
from dray.cli.tables import TableFormat, TableOption, facts, show
from dray.kafka_client.cluster import Cluster
from dray.kafka_client.groups import (
    GroupMember,
    GroupView,
    Lag,
    delete_group,
    describe_group,
    list_groups,
    move_offsets,
    refuse_members,
)
from dray.kafka_client.places import FORMS, parse_target
from dray.kafka_client.resetting import Move, plan_moves

app: Final = typer.Typer(no_args_is_help=True)
GroupName: TypeAlias = Annotated[
    str, typer.Argument(metavar="GROUP", help="The name of the group.", autocompletion=groups_like)
]


@app.command("list")
def list_command(
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only groups in this state: Stable, Empty, ...")
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--type", help="Only groups of this type: classic, consumer")
    ] = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """The groups of the cluster."""
    found = ask(bootstrap, profile, lambda cluster: list_groups(cluster, state or (), kind or ()))
    groups = [{"group": one.group, "type": one.kind, "state": one.state, "protocol": one.protocol} for one in found]
    rows = [(one.group, one.kind, one.state, one.protocol) for one in found]
    show(form, {"groups": groups}, ("GROUP", "TYPE", "STATE", "PROTOCOL"), rows)


@app.command("describe")
def describe_command(
    group: GroupName, bootstrap: Bootstrap = None, profile: Profile = None, form: TableOption = TableFormat.TEXT
) -> None:
    """State, members and lag of a group."""
    view = ask(bootstrap, profile, lambda cluster: describe_group(cluster, group))
    if form is TableFormat.TEXT:
        behind = [lag.records for lag in view.lags if lag.records is not None]
        told = {"group": view.group, "type": view.kind, "state": view.state, "assignor": view.assignor}
        facts({**told, "members": len(view.members), "lag": sum(behind) if behind else None})
        idle = [member for member in view.members if not member.owns]
        for member in idle:
            typer.echo(f"  idle member {member.member} client={member.client} host={member.host}")
        if not view.lags:
            return
        typer.echo()
    owners = {place: member for member in view.members for place in member.owns}
    rows = [_row(lag, owners.get(lag.place)) for lag in view.lags]
    heading = ("TOPIC", "PARTITION", "COMMITTED", "START", "END", "LAG", "CLIENT", "HOST", "MEMBER")
    show(form, _document(view), heading, rows)


@app.command("reset")
def reset_command(
    group: GroupName,
    to: Annotated[str, typer.Option("--to", metavar="PLACE", help=f"Where to go: {FORMS}.")],
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="Only this topic; by default all that the group has read.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Move the offsets of a group that has no members."""
    target = given("--to", parse_target, to)

    async def plan(cluster: Cluster) -> list[Move]:
        view = await describe_group(cluster, group)
        refuse_members(view)
        return await plan_moves(cluster, view, target, topic or ())

    async def carry_out(cluster: Cluster) -> None:
        await move_offsets(cluster, group, {move.place: move.after for move in moves})

    moves = ask(bootstrap, profile, plan)
    if not dry_run:
        confirm(group, yes, f"move {len(moves)} partitions of {group}")
        ask(bootstrap, profile, carry_out)
    document = {
        "group": group,
        "dry_run": dry_run,
        "partitions": [
            {"topic": one.place.topic, "partition": one.place.partition, "from": one.before, "to": one.after}
            for one in moves
        ],
    }
    rows = [(one.place.topic, one.place.partition, one.before, one.after) for one in moves]
    show(form, document, ("TOPIC", "PARTITION", "FROM", "TO"), rows)
    tell_dry_run(dry_run, form)


@app.command("delete")
def delete_command(
    group: GroupName,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Drop a group that has no members, and its offsets with it."""

    async def look(cluster: Cluster) -> GroupView:
        view = await describe_group(cluster, group)
        refuse_members(view)
        return view

    view = ask(bootstrap, profile, look)
    offsets = sum(lag.committed is not None for lag in view.lags)
    if not dry_run:
        confirm(group, yes, f"delete {group} and {offsets} committed offsets")
        ask(bootstrap, profile, lambda cluster: delete_group(cluster, group))
    document = {"group": group, "dry_run": dry_run, "offsets": offsets}
    show(form, document, ("GROUP", "OFFSETS"), [(group, offsets)])
    tell_dry_run(dry_run, form)


def _row(lag: Lag, owner: GroupMember | None) -> tuple[str | int | None, ...]:
    at = (lag.place.topic, lag.place.partition, lag.committed, lag.start, lag.end, lag.records)
    return (*at, *((None, None, None) if owner is None else (owner.client, owner.host, owner.member)))


def _document(view: GroupView) -> dict[str, object]:
    return {
        "group": view.group,
        "type": view.kind,
        "state": view.state,
        "assignor": view.assignor,
        "members": [
            {
                "member": one.member,
                "instance": one.instance,
                "client": one.client,
                "host": one.host,
                "partitions": [{"topic": place.topic, "partition": place.partition} for place in one.owns],
            }
            for one in view.members
        ],
        "partitions": [
            {
                "topic": one.place.topic,
                "partition": one.place.partition,
                "committed": one.committed,
                "start": one.start,
                "end": one.end,
                "lag": one.records,
            }
            for one in view.lags
        ],
    }
