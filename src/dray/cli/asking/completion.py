"""Prints what teaches a shell to complete commands, options and names."""

from enum import Enum
from typing import Annotated

import typer
from typer._completion_shared import get_completion_script


class Shell(Enum):
    """The shells that are known."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def command(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print the script for a shell: commands, options, and names of topics and groups are completed.

    bash: source <(dray completion bash), in ~/.bashrc.
    zsh: source <(dray completion zsh), in ~/.zshrc after compinit.
    fish: dray completion fish > ~/.config/fish/completions/dray.fish
    """
    typer.echo(get_completion_script(prog_name="dray", complete_var="_DRAY_COMPLETE", shell=shell.value))
