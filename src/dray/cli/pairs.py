"""Options of the form KEY=VALUE."""

from collections.abc import Mapping, Sequence

import typer


def pairs(option: str, texts: Sequence[str] | None) -> Mapping[str, str]:
    """KEY=VALUE, as often as it was given."""
    found: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"expected KEY=VALUE, not {text!r}", param_hint=option)
        found[key] = value
    return found
