"""An operator's step to a newer version of the rules, in every domain of a cluster.

Beside a running broker it goes through `DIR/meta.sock`, or to the engine that
keeps the logs; with none, the directory is locked and its logs are opened for
as long as it takes. The machine judges: where a live broker or compactor does not know the version,
nothing changes and the refusal says so (M12).
"""

from dray.errors import Conflict
from dray.machine.head import Activate
from dray.machine.machine import Machine
from dray.machine.sessions import SessionKind
from dray.machine.verdict import Refused
from dray.node.metadata import Effects
from dray.node.reaching import DirectoryOrCluster, reach


async def activate(place: DirectoryOrCluster, version: int, effects: Effects) -> dict[int, tuple[int, int]]:
    """For each domain the version before and after.

    Raises:
        Conflict: a live broker or compactor does not support it; nothing changed there.
    """
    done = {}
    async with reach(place, effects) as reached:
        for domain in reached.domains(effects):
            async with reached.following(domain, "operator", effects) as replica:
                before = replica.machine.version
                if version < before:
                    raise Conflict("a newer version is active already", active=before, wanted=version)
                (verdict,) = await replica.propose(Activate(version=version))
                if isinstance(verdict, Refused):
                    raise Conflict(
                        "not every broker and compactor knows this version: upgrade them first",
                        version=version, reason=verdict.reason, older=_older(replica.machine, version),
                    )  # fmt: skip
                done[domain] = before, replica.machine.version
                await replica.close_session()
    return done


def _older(machine: Machine, version: int) -> str:
    """Who does not know it: brokers by their id where it is known, else by the name of their session."""
    sessions = [
        session for session in machine.sessions.live.values()
        if session.kind is not SessionKind.TOOL and session.highest_version < version
    ]  # fmt: skip
    brokers = [(session, machine.brokers.of_session(session.id)) for session in sessions]
    return ",".join(session.name if broker is None else f"broker {broker.broker_id}" for session, broker in brokers)
