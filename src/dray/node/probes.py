"""What readiness asks of a broker: each probe returns if all is well, and raises what is not."""

import asyncio
from typing import Final

from dray.errors import DrayError, Unavailable
from dray.objects.cluster import bound_to
from dray.objects.port import Objects
from dray.replica.domains import Domains
from dray.replica.residence import Residence
from dray.servers.http.app import Probe
from dray.tasks.watch import Watch

PROBE_TTL_S: Final = 2.0


def metadata_probe(domains: Domains) -> Probe:
    """Does the catalog's replica serve?"""

    async def probe() -> None:
        domains.catalog.check_serving()

    return probe


def domains_probe(residence: Residence) -> Probe:
    """Are all domains loaded that this broker leads (DL1)?"""

    async def probe() -> None:
        if residence.missing:
            raise Unavailable("a domain that is led here is not loaded", domains=sorted(residence.missing))

    return probe


def tasks_probe(watch: Watch) -> Probe:
    """Does all long-lived work go on?"""

    async def probe() -> None:
        watch.check()

    return probe


def stop_probe(stopping: asyncio.Event) -> Probe:
    """Was it told to stop? Whoever sends clients here should send them elsewhere while it still serves."""

    async def probe() -> None:
        if stopping.is_set():
            raise Unavailable("it was told to stop")

    return probe


def store_probe(objects: Objects, cluster_id: str) -> Probe:
    """Is what we were bound to still there? One look serves whoever asks within a short time."""
    state: dict[str, float | DrayError | None] = {"at": -PROBE_TTL_S, "error": None}

    async def probe() -> None:
        now = asyncio.get_running_loop().time()
        at, error = state["at"], state["error"]
        if isinstance(at, float) and now - at >= PROBE_TTL_S:
            try:
                async with asyncio.timeout(PROBE_TTL_S):
                    found = await bound_to(objects)
                # A volume that is not mounted any more is an empty directory: it answers, and is not our store.
                error = None if found == cluster_id else Unavailable("the store is not this cluster's", found=found)
            except TimeoutError:
                error = Unavailable("the store does not answer")
            except DrayError as failure:
                error = failure
            state.update(at=now, error=error)
        if isinstance(error, DrayError):
            raise error

    return probe
