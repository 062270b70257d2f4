"""API keys, over the network: make, list and revoke them. `drayd admin key` does it on a data directory."""

from datetime import datetime
from typing import Annotated, Final

import typer

from dray.cli.asking._connecting import Yes, confirm, given
from dray.cli.asking._heaping import GrpcEndpoint, ask_heaps
from dray.cli.options import KEY_ROLE_HELP, KeyExpires, KeyName, KeyPrincipal
from dray.cli.tables import Cell, TableFormat, TableOption, show
from dray.client import KeyInfo, KeyRole
from dray.config import parse_duration

app: Final = typer.Typer(no_args_is_help=True)
HEADING: Final = ("KEY", "NAME", "PRINCIPAL", "ROLE", "CREATED", "USED", "EXPIRES", "REVOKED")


@app.command("create")
def create_command(
    name: KeyName = "",
    role: Annotated[KeyRole | None, typer.Option("--role", help=KEY_ROLE_HELP)] = None,
    principal: KeyPrincipal = "",
    expires: KeyExpires = "",
    endpoint: GrpcEndpoint = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Make a key. Its secret is shown once, and stored nowhere."""
    life = given("--expires", parse_duration, expires) if expires else None
    made = ask_heaps(endpoint, lambda client: client.keys.create(name, role=role, principal=principal, expires_in=life))
    if form is TableFormat.TEXT:
        typer.echo(made.secret)
        typer.echo(
            f"\nThis is key {made.info.id} of {made.info.principal}, role {made.info.role.value}. "
            "Keep it: it is shown this once."
        )
    else:
        document = {**_document(made.info), "key": made.secret}
        show(form, document, (*HEADING, "SECRET"), [(*_row(made.info), made.secret)])


@app.command("list")
def list_command(endpoint: GrpcEndpoint = None, form: TableOption = TableFormat.TEXT) -> None:
    """Every key, when it was last used, and whether it was revoked."""
    found = ask_heaps(endpoint, lambda client: client.keys.list())
    show(form, {"keys": [_document(one) for one in found]}, HEADING, [_row(one) for one in found])


@app.command("revoke")
def revoke_command(
    key_id: Annotated[str, typer.Argument(metavar="KEY", help="The id of the key.")],
    yes: Yes = False,
    endpoint: GrpcEndpoint = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Let a key work no more, at once and on open streams too."""
    confirm(key_id, yes, f"revoke the key {key_id}")
    ask_heaps(endpoint, lambda client: client.keys.revoke(key_id))
    show(form, {"id": key_id, "revoked": True}, ("KEY", "REVOKED"), [(key_id, True)])


def _row(one: KeyInfo) -> tuple[Cell, ...]:
    return tuple(_document(one).values())


def _document(one: KeyInfo) -> dict[str, Cell]:
    return {
        "id": one.id,
        "name": one.name,
        "principal": one.principal,
        "role": one.role.value,
        "created": _moment(one.created),
        "used": _moment(one.last_used),
        "expires": _moment(one.expires),
        "revoked": one.revoked,
    }


def _moment(at: datetime | None) -> str | None:
    return None if at is None else at.strftime("%Y-%m-%d %H:%M")
