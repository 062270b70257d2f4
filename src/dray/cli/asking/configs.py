"""Configs of topics, brokers and groups: what holds, where it comes from, and changing it."""

from typing import Annotated, Final, TypeAlias

import typer

from dray.cli.asking._altering import DeleteOptions, SetOptions, alter
from dray.cli.asking._connecting import Bootstrap, DryRun, Profile, ask
from dray.cli.tables import TableFormat, TableOption, show
from dray.kafka_client.configs import ConfigOwner, describe_configs

app: Final = typer.Typer(no_args_is_help=True)

OwnerKind: TypeAlias = Annotated[
    ConfigOwner, typer.Argument(metavar="KIND", help="What has them: topic, broker or group.")
]
OwnerName: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="Which one; a broker by its number.")]


@app.command("describe")
def describe_command(
    owner: OwnerKind,
    name: OwnerName,
    own: Annotated[bool, typer.Option("--own", help="Only what was set for this one; no defaults.")] = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """All configs that hold, and who said so: topic, broker, cluster, group, static (a file) or default."""
    found = ask(bootstrap, profile, lambda cluster: describe_configs(cluster, owner, name))
    rows = [row for row in found if row.own or not own]
    document = {
        owner.value: name,
        "configs": [
            {
                "name": row.name,
                "value": row.value,
                "source": row.source,
                "read_only": row.read_only,
                "sensitive": row.sensitive,
            }
            for row in rows
        ],
    }
    cells = [(row.name, "***" if row.sensitive else row.value, row.source) for row in rows]
    show(form, document, ("CONFIG", "VALUE", "SOURCE"), cells)


@app.command("alter")
def alter_command(
    owner: OwnerKind,
    name: OwnerName,
    sets: SetOptions = None,
    deletes: DeleteOptions = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Change some configs; the others stay as they are."""
    alter(owner, name, sets, deletes, dry_run=dry_run, bootstrap=bootstrap, profile=profile, form=form)
