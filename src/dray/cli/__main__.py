"""`python -m dray.cli` is `drayd`."""

from dray.cli.main import main

main()
