"""`drayd admin key` and `drayd admin audit`: who is let in, and what administrators did."""

from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated, Final

import typer

from dray.access.audit import ChainEnd
from dray.access.authorizer import Action
from dray.access.key_service import KeyService, NewKey
from dray.access.keys import KeyText
from dray.access.principals import KnownCaller
from dray.cli.options import KEY_ROLE_HELP, ConfigFile, FormatOption, KeyExpires, KeyName, KeyPrincipal, Sets
from dray.cli.output import Format, answer
from dray.cli.places import CommandPlace, Where, run_at
from dray.cli.tables import TableFormat, TableOption, show
from dray.config import parse_duration
from dray.machine.access import ApiKey, KeyRole
from dray.node.audit_files import AskedCommand, check_audit, unlisted
from dray.node.directory import DataDirectory
from dray.node.keys import change_keys, list_keys

key: Final = typer.Typer(help="API keys, for who owns the data directory or the log; brokers may run.")
audit: Final = typer.Typer(help="The audit files of a data directory: what administrators did.")

CONFIRMED: Final = "It works no more, at once and on open streams too. Revoke it?"


class RoleName(Enum):
    """What a key may do."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


@key.command("create")
def create(
    where: Where,
    name: KeyName = "",
    role: Annotated[RoleName | None, typer.Option("--role", help=KEY_ROLE_HELP)] = None,
    principal: KeyPrincipal = "",
    expires: KeyExpires = "",
    config: ConfigFile = None,
    sets: Sets = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Make a key. Its secret is shown once, and stored nowhere."""
    wanted = NewKey(
        name=name,
        principal=principal,
        role=None if role is None else KeyRole[role.name],
        life_ms=_life_ms(expires),
    )

    async def make(asked: CommandPlace) -> tuple[ApiKey, KeyText]:
        async def work(keys: KeyService, caller: KnownCaller) -> tuple[ApiKey, KeyText]:
            return await keys.create(wanted, caller)

        return await change_keys(asked.place, asked.root, asked.effects, Action.CREATE_KEY, name, work)

    made, text = run_at(where, config, sets, make)
    document = {**_shown(made, made.created_ms), "key": text.reveal()}
    told = f"{text.reveal()}\n\nThis is key {made.id} of {made.principal}, role {made.role.name.lower()}. "
    told += "Keep it: it is shown this once.\nFrom now on the HTTP and gRPC ports of this cluster need a key, "
    told += "unless access.required is off."
    answer(form, document, told)


@key.command("list")
def list_all(where: Where, config: ConfigFile = None, sets: Sets = None, form: TableOption = TableFormat.TEXT) -> None:
    """Every key, when it was last used, and whether it works."""
    found, now_ms = run_at(where, config, sets, lambda asked: list_keys(asked.place, asked.effects))
    rows = [
        (one.id, one.name, one.principal, one.role.name.lower(), _moment(one.created_ms), _moment(one.used_ms),
         _moment(one.expires_ms), _state(one, now_ms))
        for one in found
    ]  # fmt: skip
    heading = ("KEY", "NAME", "PRINCIPAL", "ROLE", "CREATED", "USED", "EXPIRES", "STATE")
    show(form, {"keys": [_shown(one, now_ms) for one in found]}, heading, rows)


@key.command("revoke")
def revoke(
    where: Where,
    key_id: Annotated[str, typer.Argument(metavar="KEY", help="The id of the key.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: ConfigFile = None,
    sets: Sets = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Let a key work no more."""
    if not yes:
        typer.confirm(CONFIRMED, abort=True)

    async def end(asked: CommandPlace) -> None:
        async def work(keys: KeyService, caller: KnownCaller) -> None:
            await keys.revoke(key_id, caller)

        await change_keys(asked.place, asked.root, asked.effects, Action.REVOKE_KEY, key_id, work)

    run_at(where, config, sets, end)
    answer(form, {"id": key_id, "revoked": True}, f"key {key_id} works no more")


@audit.command("verify")
def verify(where: Where, config: ConfigFile = None, sets: Sets = None, form: FormatOption = Format.TEXT) -> None:
    """Check that no line of the audit files was changed, dropped or inserted, and compare them with the log."""

    async def compare(at: CommandPlace) -> tuple[dict[str, ChainEnd], int, list[AskedCommand]]:
        chains = check_audit(DataDirectory(at.root), at.effects.disk)
        return chains, *await unlisted(at.place, at.root, at.effects)

    found, asked, missing = run_at(where, config, sets, compare)
    document = {
        "chains": [
            {"path": place, "lines": end.lines, "files": end.files, "hash": end.hash, "torn_bytes": end.torn_bytes}
            for place, end in found.items()
        ],
        "asked": asked,
        "unlisted": [
            {"position": one.position, "command": one.command, "actor": one.actor, "request": one.request}
            for one in missing
        ],
    }
    lines = [
        f"{place}: {end.lines} lines in {end.files} files are whole, hash {end.hash}" for place, end in found.items()
    ]
    lines += [
        f"{place}: {end.torn_bytes} bytes behind them were left by a crash or a full disk"
        for place, end in found.items()
        if end.torn_bytes
    ]
    lines.append(f"the log holds {asked} commands of administrators, {asked - len(missing)} of them are in these files")
    lines += [f"not here: {one.command} at {one.position} by {one.actor}, request {one.request}" for one in missing]
    answer(form, document, "\n".join(lines))


def _life_ms(text: str) -> int:
    if not text:
        return 0
    try:
        life_ms = parse_duration(text) // timedelta(milliseconds=1)
    except ValueError as bad:
        raise typer.BadParameter(str(bad), param_hint="--expires") from bad
    if life_ms <= 0:
        raise typer.BadParameter("expected more than nothing", param_hint="--expires")
    return life_ms


def _shown(one: ApiKey, now_ms: int) -> dict[str, object]:
    return {
        "id": one.id, "name": one.name, "principal": one.principal, "role": one.role.name.lower(),
        "created": _moment(one.created_ms), "used": _moment(one.used_ms), "expires": _moment(one.expires_ms),
        "state": _state(one, now_ms),
    }  # fmt: skip


def _state(one: ApiKey, now_ms: int) -> str:
    if one.revoked_ms:
        return "revoked"
    return "works" if one.works(now_ms) else "expired"


def _moment(ms: int) -> str | None:
    return datetime.fromtimestamp(ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M") if ms else None
