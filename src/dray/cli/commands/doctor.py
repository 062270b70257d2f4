"""Look for what may be wrong: store, log, disk, clock and limits."""

import asyncio
from typing import Final

import typer

from dray.cli.options import ConfigFile, DataOption, FormatOption, Sets, load_config
from dray.cli.output import FAILURE, Format, answer
from dray.config import Config, Override
from dray.node.doctor import Finding, State, examine

app: Final = typer.Typer()


@app.callback(invoke_without_command=True)
def doctor(
    config: ConfigFile = None,
    sets: Sets = None,
    data: DataOption = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Look for what may be wrong: store, log, disk, clock and limits. Exit code 1 if something is."""
    flags = [] if data is None else [Override(key="broker.data", value=str(data), flag="--data")]
    findings = asyncio.run(_collect(load_config(config, sets, flags), form))
    failed = any(finding.state is State.FAIL for finding in findings)
    document = {
        "healthy": not failed,
        "findings": [
            {"check": one.check, "state": one.state.value, "saw": one.saw, "next": one.next} for one in findings
        ],
    }
    answer(form, document, "nothing is wrong" if not failed else "something is wrong: see above")
    if failed:
        raise typer.Exit(FAILURE)


async def _collect(config: Config, form: Format) -> list[Finding]:
    findings = []
    async for finding in examine(config):
        findings.append(finding)
        if form is Format.TEXT:  # a check may take seconds: each is told when it is done
            typer.echo(f"{finding.state.value:<5}{finding.check:<10}{finding.saw}")
            if finding.next:
                typer.echo(f"{'':<15}next: {finding.next}")
    return findings
