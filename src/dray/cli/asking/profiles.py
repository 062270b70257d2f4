"""Your clusters by name, and the one that is asked now."""

import typer

from dray.cli.asking._connecting import Bootstrap, Profile, selected
from dray.cli.profiles import environment, profiles_file, read_profiles
from dray.cli.tables import TableFormat, TableOption, facts, show


def command(bootstrap: Bootstrap = None, profile: Profile = None, form: TableOption = TableFormat.TEXT) -> None:
    """Your clusters by name, and the one that is asked now.

    The file is ~/.config/dray/config.toml, or below $XDG_CONFIG_HOME. It is TOML: a table `profiles.NAME` for each
    cluster, with its `bootstrap`, and `profile`, the name of the one that is asked when nothing else is said.
    """
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
