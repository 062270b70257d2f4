"""What every command of `dray` has: a cluster to ask, and the way from a question to its answer."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Final, TypeAlias, TypeVar

import typer

from dray.cli.confirming import DryRun as DryRun
from dray.cli.confirming import Yes as Yes
from dray.cli.confirming import confirm as confirm
from dray.cli.confirming import tell_dry_run as tell_dry_run
from dray.cli.pairs import pairs as pairs
from dray.cli.profiles import LOCAL, BadProfiles, Selection, environment, profiles_file, read_profiles, select
from dray.errors import DrayError, Invalid
from dray.kafka_client.cluster import Cluster
from dray.node.addresses import HostPort, parse_host_port

T = TypeVar("T")

_CONNECTION: Final = "Which cluster"
Bootstrap: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help="A broker of the cluster, or several with commas; or DRAY_BOOTSTRAP.",
        show_default=LOCAL,
        rich_help_panel=_CONNECTION,
    ),
]
Profile: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="A cluster of your file: see `dray profiles`; or DRAY_PROFILE.",
        rich_help_panel=_CONNECTION,
    ),
]


def selected(bootstrap: str | None, profile: str | None) -> Selection:
    """The cluster that the user means; a file or a name that cannot be used is wrong usage."""
    environ = environment()
    try:
        return select(bootstrap, profile, environ, read_profiles(profiles_file(environ)))
    except BadProfiles as error:
        raise typer.BadParameter(f"{error}: {error.advice}", param_hint="the profiles") from error
    except DrayError as error:
        raise typer.BadParameter(f"{error}: {error.advice}", param_hint="--profile") from error


def addresses(chosen: Selection) -> list[HostPort]:
    """Where to connect first."""

    def parse(text: str) -> list[HostPort]:
        return [parse_host_port(one.strip(), chosen.origin) for one in text.split(",")]

    return given(chosen.origin, parse, chosen.bootstrap)


def ask(bootstrap: str | None, profile: str | None, question: Callable[[Cluster], Coroutine[object, object, T]]) -> T:
    """Connect, ask, and leave."""
    first = [(at.host, at.port) for at in addresses(selected(bootstrap, profile))]

    async def run() -> T:
        async with Cluster(first) as cluster:
            return await question(cluster)

    return asyncio.run(run())


def given(option: str, parse: Callable[[str], T], text: str) -> T:
    """What an option says; nonsense there is wrong usage, as Typer tells it."""
    try:
        return parse(text)
    except Invalid as error:
        raise typer.BadParameter(
            error.message + (f": {error.advice}" if error.advice else ""), param_hint=option
        ) from error
