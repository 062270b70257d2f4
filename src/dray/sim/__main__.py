"""`python -m dray.sim`."""

from dray.sim.runner import main

if __name__ == "__main__":
    raise SystemExit(main())
