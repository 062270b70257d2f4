"""Your clusters by name, and the one that is asked now.

The file is ~/.config/dray/config.toml, or below $XDG_CONFIG_HOME:

    profile = "local"

    [profiles.local]
    bootstrap = "127.0.0.1:9092"
"""

from typing import Final

import typer

from dray.cli.asking._connecting import Bootstrap, Profile, selected
from dray.cli.profiles import environment, profiles_file, read_profiles
from dray.cli.tables import TableFormat, TableOption, facts, show

app: Final = typer.Typer()


@app.callback(invoke_without_command=True, help=__doc__)
def profiles_command(
    bootstrap: Bootstrap = None, profile: Profile = None, form: TableOption = TableFormat.TEXT
) -> None:
    now = selected(bootstrap, profile)
    profiles = read_profiles(profiles_file(environment()))
    if form is TableFormat.TEXT:
        facts({"file": str(profiles.file), "asks": now.bootstrap, "because of": now.origin})
        if not profiles.bootstraps:
            return
        typer.echo()
    document = {
        "file": str(profiles.file),
        "bootstrap": now.bootstrap,
        "origin": now.origin,
        "profile": now.profile,
        "profiles": [{"profile": name, "bootstrap": told} for name, told in sorted(profiles.bootstraps.items())],
    }
    rows = [(name, told, "yes" if name == now.profile else None) for name, told in sorted(profiles.bootstraps.items())]
    show(form, document, ("PROFILE", "BOOTSTRAP", "ASKED"), rows)
