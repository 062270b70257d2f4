"""Changes of configs, which `dray topics alter` and `dray configs alter` share."""

from collections.abc import Sequence
from typing import Annotated, TypeAlias

import typer

from dray.cli.asking._connecting import ask, pairs, tell_dry_run
from dray.cli.tables import TableFormat, show
from dray.kafka_client.cluster import Cluster
from dray.kafka_client.configs import ConfigEdit, ConfigOwner, alter_configs, describe_configs

SetOptions: TypeAlias = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Give a config a value; as often as needed.")
]
DeleteOptions: TypeAlias = Annotated[
    list[str] | None, typer.Option("--delete", metavar="KEY", help="Let a config be what it is by default.")
]


def alter(
    owner: ConfigOwner,
    name: str,
    sets: Sequence[str] | None,
    deletes: Sequence[str] | None,
    *,
    dry_run: bool,
    bootstrap: str | None,
    profile: str | None,
    form: TableFormat,
) -> None:
    """Change configs, and tell what they were."""
    changed = pairs("--set", sets)
    if twice := sorted(changed.keys() & set(deletes or ())):
        raise typer.BadParameter(f"{twice[0]} is set and deleted at once", param_hint="--delete")
    changes = [ConfigEdit(name=key, value=value) for key, value in changed.items()]
    changes += [ConfigEdit(name=key, value=None) for key in deletes or ()]
    if not changes:
        raise typer.BadParameter("say what to change: --set KEY=VALUE or --delete KEY", param_hint="--set")

    async def change(cluster: Cluster) -> dict[str, str | None]:
        before = await describe_configs(cluster, owner, name)
        await alter_configs(cluster, owner, name, changes, only_check=dry_run)
        return {row.name: row.value for row in before}

    before = ask(bootstrap, profile, change)
    document = {
        owner.value: name,
        "dry_run": dry_run,
        "configs": [{"name": one.name, "from": before.get(one.name), "to": one.value} for one in changes],
    }
    rows = [(one.name, before.get(one.name), "(default)" if one.value is None else one.value) for one in changes]
    show(form, document, ("CONFIG", "FROM", "TO"), rows)
    tell_dry_run(dry_run, form)
