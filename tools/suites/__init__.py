"""The integration suites of clients that others wrote, run against Dray.

    python -m tools.suites                       those that come from PyPI; writes what came of it into docs/compat.md
    python -m tools.suites aiokafka CHECKOUT     one whose archive has no tests: from a checkout of its repository
    python -m tools.suites kafka-python -k group    some tests of one; writes nothing

A suite comes from its source archive on PyPI, by name and in the version that
our tests use; nothing of it is kept in the repository. It runs in an
environment of its own below `.peers`, against a broker of this checkout.
"""
