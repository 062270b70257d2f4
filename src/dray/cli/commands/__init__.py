"""The commands of `drayd`: one module each, imported only when it is called.

A module `name.py` is the command `drayd name`; the first line of its
docstring is the line in `drayd --help`. It exports `app`, a `typer.Typer`:
with `@app.command()` for each subcommand, or, for a command without any, with
`@app.callback(invoke_without_command=True)`. It raises `DrayError` for what
the user can mend; `dray.cli.main` tells it and picks the exit code. Modules
that begin with an underscore are not commands.
"""
