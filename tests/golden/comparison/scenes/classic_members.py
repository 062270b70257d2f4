"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup and DescribeGroups: members of classic groups."""

from tests.golden.comparison.scenes.classic_calls import (
    DESCRIBE,
    HEARTBEAT,
    JOIN,
    LAST,
    LEAVE,
    REBALANCING,
    SYNC,
    beating,
    describe,
    given_id,
    joining,
    leaving,
    stable,
    syncing,
    tell,
)
from tests.golden.comparison.scenes.groups import commit
from tests.golden.comparison.talking import Talk

_STRANGER = "stranger"


async def classic_members_in_every_version(talk: Talk) -> None:
    for version in range(LAST[JOIN] + 1):
        group, at = await talk.group(), f"in version {version}"
        joined = await tell(talk, f"join {at}", JOIN, joining(group), version)
        if version >= 4:
            joined = await tell(talk, f"join with the id {at}", JOIN, joining(group, joined.member_id), version)
        member = joined.member_id
        for name, key, message in (
            ("sync", SYNC, syncing(group, member, 1)),
            ("sync again", SYNC, syncing(group, member, 1)),
            ("heartbeat", HEARTBEAT, beating(group, member, 1)),
        ):
            await tell(talk, f"{name} {at}", key, message, min(version, LAST[key]))
        await describe(talk, f"described {at}", group, version=min(version, LAST[DESCRIBE]))
        if version <= LAST[LEAVE]:
            await tell(talk, f"leave {at}", LEAVE, leaving(group, member, version=version), version)
            await describe(talk, f"described when it has left {at}", group, version=version)


async def classic_joins_refused(talk: Talk) -> None:
    for version in (0, 5, 7, 9):
        group, at = await talk.group(), f"in version {version}"
        for shape, message in (
            ("no group", joining("")),
            ("a stranger to no group", joining(group, _STRANGER)),
            ("a stranger without protocols to no group", joining(group, _STRANGER, protocols=[])),
            ("a session of a millisecond", joining(group, session_timeout_ms=1)),
            ("a session of a day", joining(group, session_timeout_ms=86_400_000)),
            ("a session of less than nothing", joining(group, session_timeout_ms=-1)),
            ("no protocols", joining(group, protocols=[])),
            ("no type", joining(group, protocol_type="")),
        ):
            await tell(talk, f"{shape} {at}", JOIN, message, version)
        left = await stable(talk, group)
        await tell(talk, f"the only member leaves {at}", LEAVE, leaving(group, left))
        for shape, message in (
            ("a stranger to an empty group", joining(group, _STRANGER)),
            ("a stranger without protocols to an empty group", joining(group, _STRANGER, protocols=[])),
            ("who has left", joining(group, left)),
        ):
            await tell(talk, f"{shape} {at}", JOIN, message, version)
        await stable(talk, group)
        for shape, message in (
            ("a stranger", joining(group, _STRANGER)),
            ("another protocol", joining(group, "", "sticky")),
            ("another protocol and an id", joining(group, _STRANGER, "sticky")),
            ("another type", joining(group, protocol_type="connect")),
            ("no protocols to a group with members", joining(group, protocols=[])),
            ("no type to a group with members", joining(group, protocol_type="")),
        ):
            await tell(talk, f"{shape} {at}", JOIN, message, version)


async def classic_syncs_refused(talk: Talk) -> None:
    for version in (0, 4, 5):
        group, at = await talk.group(), f"in version {version}"
        await tell(talk, f"no such group {at}", SYNC, syncing(group, _STRANGER, 1), version)
        member = await stable(talk, group)
        for shape, message in (
            ("no group", syncing("", member, 1)),
            ("a stranger", syncing(group, _STRANGER, 1)),
            ("nobody", syncing(group, "", 1)),
            ("an older generation", syncing(group, member, 0)),
            ("a later generation", syncing(group, member, 2)),
            ("another protocol", syncing(group, member, 1, protocol_name="sticky")),
            ("another type", syncing(group, member, 1, protocol_type="connect")),
            ("no protocol", syncing(group, member, 1, protocol_name=None)),
            ("no type and a stranger", syncing(group, _STRANGER, 1, protocol_type=None)),
            ("no type and no group", syncing("", member, 1, protocol_type=None)),
        ):
            await tell(talk, f"{shape} {at}", SYNC, message, version)


async def classic_heartbeats_refused(talk: Talk) -> None:
    for version in (0, 4):
        group, at = await talk.group(), f"in version {version}"
        await tell(talk, f"no such group {at}", HEARTBEAT, beating(group, _STRANGER, 1), version)
        pending = await given_id(talk, group)
        await tell(talk, f"an id that has not joined {at}", HEARTBEAT, beating(group, pending, -1), version)
        await tell(talk, f"the id leaves {at}", LEAVE, leaving(group, pending))
        member = await stable(talk, group)
        for shape, message in (
            ("no group", beating("", member, 1)),
            ("a stranger", beating(group, _STRANGER, 1)),
            ("nobody", beating(group, "", 1)),
            ("an older generation", beating(group, member, 0)),
            ("a later generation", beating(group, member, 2)),
        ):
            await tell(talk, f"{shape} {at}", HEARTBEAT, message, version)


async def classic_leaves_refused(talk: Talk) -> None:
    for version in (0, 2, 3, 5):
        group, at = await talk.group(), f"in version {version}"
        nobody = leaving(group, _STRANGER, version=version)
        await tell(talk, f"no group {at}", LEAVE, leaving("", _STRANGER, version=version), version)
        await tell(talk, f"no such group {at}", LEAVE, nobody, version)
        pending = await given_id(talk, group)
        await tell(talk, f"an id that has not joined {at}", LEAVE, leaving(group, pending, version=version), version)
        await stable(talk, group)
        await tell(talk, f"a stranger {at}", LEAVE, nobody, version)
        await tell(talk, f"nobody {at}", LEAVE, leaving(group, "", version=version), version)
    member, other = await stable(talk, other_group := await talk.group()), ("", "instance")
    await tell(talk, "several", LEAVE, leaving(other_group, _STRANGER, other, member, member))
    await tell(talk, "none", LEAVE, leaving(other_group))


async def classic_members_that_share(talk: Talk) -> None:
    """Two members: every state of the group, and what each is told in it."""
    group, topic = await talk.group(), await talk.topic()
    member = await stable(talk, group)
    await describe(talk, "described alone", group)
    second = await given_id(talk, group)
    await describe(talk, "described with an id that has not joined", group)
    coming = talk.park(JOIN, 9, joining(group, second))
    await talk.until(
        "heartbeat when another comes", HEARTBEAT, 4, beating(group, member, 1), lambda it: it.error_code == REBALANCING
    )
    await describe(talk, "described while they join", group)
    await tell(talk, "sync while they join", SYNC, syncing(group, member, 1))
    await _commits(talk, "while they join", group, topic, member, 1)
    await tell(talk, "the leader joins", JOIN, joining(group, member))
    await talk.answered("the other joins", coming)
    await describe(talk, "described before the leader says", group)
    await tell(talk, "heartbeat before the leader says", HEARTBEAT, beating(group, member, 2))
    await _commits(talk, "before the leader says", group, topic, member, 2)
    waiting = talk.park(SYNC, 5, syncing(group, second, 2, assignments=[]))
    await tell(talk, "the leader says", SYNC, syncing(group, member, 2, second))
    await talk.answered("the other is told", waiting)
    await describe(talk, "described with two", group)
    await _commits(talk, "with two", group, topic, second, 2)
    await tell(talk, "the other joins again", JOIN, joining(group, second))
    await tell(talk, "the other joins as an older client", JOIN, joining(group, second), 5)
    await tell(talk, "the leader leaves", LEAVE, leaving(group, member))
    await tell(talk, "heartbeat when the leader has left", HEARTBEAT, beating(group, second, 2))
    await describe(talk, "described when the leader has left", group)
    await tell(talk, "the other leads", JOIN, joining(group, second, "sticky", "range"))
    await tell(talk, "the other says", SYNC, syncing(group, second, 3, protocol_name="range"))
    await tell(talk, "the other leaves", LEAVE, leaving(group, second))
    await describe(talk, "described without members", group)
    await _commits(talk, "without members", group, topic, second, 3)


async def _commits(talk: Talk, when: str, group: str, topic: str, member: str, generation: int) -> None:
    for version in (2, 9):
        for shape, who in (
            ("commit of a member", {"member_id": member, "generation_id_or_member_epoch": generation}),
            ("commit in an older generation", {"member_id": member, "generation_id_or_member_epoch": generation - 1}),
            ("commit of a stranger", {"member_id": _STRANGER, "generation_id_or_member_epoch": generation}),
            ("commit of nobody", {}),
        ):
            await commit(talk, f"{shape} {when} in version {version}", group, (topic, [(0, 1)]), version=version, **who)


async def classic_groups_that_are_full(talk: Talk) -> None:
    """Two members are as many as a group of this comparison may have."""
    group = await talk.group()
    member = await stable(talk, group)
    second, third = await given_id(talk, group), await given_id(talk, group)
    coming = talk.park(JOIN, 9, joining(group, second))
    await talk.until(
        "heartbeat when another comes", HEARTBEAT, 4, beating(group, member, 1), lambda it: it.error_code == REBALANCING
    )
    await tell(talk, "an id of the third leaves", LEAVE, leaving(group, third))
    await tell(talk, "the first joins again", JOIN, joining(group, member))
    await talk.answered("the second joins", coming)
    await _without_room(talk, "before the leader says", group)
    await tell(talk, "the leader says", SYNC, syncing(group, member, 2, second))
    await _without_room(talk, "with two", group)
    await tell(talk, "heartbeat of the first", HEARTBEAT, beating(group, member, 2))


async def _without_room(talk: Talk, when: str, group: str) -> None:
    await tell(talk, f"a third {when}", JOIN, joining(group))
    await tell(talk, f"a third as an older client {when}", JOIN, joining(group), 3)
    await tell(talk, f"a third with an instance {when}", JOIN, joining(group, group_instance_id="instance"))
    await tell(talk, f"a third that has an id {when}", JOIN, joining(group, _STRANGER))


async def classic_members_with_instances(talk: Talk) -> None:
    group, topic = await talk.group(), await talk.topic()
    static = {"group_instance_id": "instance"}
    joined = await tell(talk, "join", JOIN, joining(group, **static))
    old = joined.member_id
    await tell(talk, "sync", SYNC, syncing(group, old, 1, **static))
    await describe(talk, "described", group)
    again = await tell(talk, "starts again", JOIN, joining(group, **static))
    member = again.member_id
    other = {"group_instance_id": "other"}
    for shape, key, message in (
        ("join of the old id", JOIN, joining(group, old, **static)),
        ("sync of the old id", SYNC, syncing(group, old, 1, **static)),
        ("heartbeat of the old id", HEARTBEAT, beating(group, old, 1, **static)),
        ("leave of the old id", LEAVE, leaving(group, (old, "instance"))),
        ("join of another instance with the id", JOIN, joining(group, member, **other)),
        ("sync of another instance", SYNC, syncing(group, member, 1, **other)),
        ("heartbeat of another instance", HEARTBEAT, beating(group, member, 1, **other)),
        ("leave of another instance", LEAVE, leaving(group, (member, "other"))),
        ("heartbeat of the old id without its instance", HEARTBEAT, beating(group, old, 1)),
        ("heartbeat without the instance", HEARTBEAT, beating(group, member, 1)),
        ("heartbeat", HEARTBEAT, beating(group, member, 1, **static)),
    ):
        await tell(talk, shape, key, message)
    for shape, who in (("the old id", old), ("the new id", member)):
        told = {"member_id": who, "generation_id_or_member_epoch": 1}
        await commit(talk, f"commit of {shape}", group, (topic, [(0, 1)]), **told, **static)
    await tell(talk, "sync again", SYNC, syncing(group, member, 1, **static))
    older = await tell(talk, "starts again as an older client", JOIN, joining(group, **static), 5)
    await tell(talk, "heartbeat of the older client", HEARTBEAT, beating(group, older.member_id, 1, **static), 3)
    await tell(talk, "an operator takes it out", LEAVE, leaving(group, ("", "instance")))
    await tell(talk, "an operator takes it out again", LEAVE, leaving(group, ("", "instance")))
    await describe(talk, "described when it is out", group)


SCENES = (
    classic_members_in_every_version,
    classic_joins_refused,
    classic_syncs_refused,
    classic_heartbeats_refused,
    classic_leaves_refused,
    classic_members_that_share,
    classic_groups_that_are_full,
    classic_members_with_instances,
)
