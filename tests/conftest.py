"""What holds for all tests: a property has no deadline, for the machine may be busy, and nobody compacts unasked."""

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("unhurried"), max_examples=20)  # of `make quick`
settings.load_profile("unhurried")

# A broker that lives for longer than a minute would start Spark in the middle of another test.
os.environ.setdefault("DRAY__COMPACTION__ENABLED", "false")
# Many brokers run at once, and one port would be all of theirs: who wants heaps over gRPC says where.
os.environ.setdefault("DRAY__GRPC__LISTEN", "")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What was collected stays until the end: no collection of garbage, then or later, need go through it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
