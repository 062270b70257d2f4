"""Run a broker as its configuration says."""

from typing import Final

import typer

from dray.cli.options import ConfigFile, Sets, load_config
from dray.cli.serving import serve

app: Final = typer.Typer()


@app.callback(invoke_without_command=True)
def broker(config: ConfigFile = None, sets: Sets = None) -> None:
    """Run a broker as its configuration says."""
    serve(load_config(config, sets))
