"""A consumer group in a checkpoint, and as people see it.

Masks are written as little-endian bytes, dicts as sorted rows (K2).
"""

from dray.machine.groups.masks import Masks, Runs, from_bytes, held, masks_of, partitions_of, to_bytes
from dray.machine.groups.members import ConsumerMember, Draft, Membership
from dray.machine.groups.names import InstanceId, MemberId
from dray.machine.groups.reconcile import MemberState
from dray.machine.groups.subscriptions import TopicView
from dray.machine.names import SessionId, TopicId
from dray.machine.noun import Fields, Shown
from dray.machine.packing import Reader, Row, Small, Writer


def dump(group: Membership, out: Writer) -> None:
    draft, topics = group.draft, group.topics
    out.values([
        group.epoch, group.assignment_epoch, group.revision, group.since_ms,
        len(topics.regexes), len(topics.views), len(group.members),
        0 if draft is None else 1 + len(draft.rows), 0 if draft is None else draft.session,
        0 if draft is None else draft.slices,
    ])  # fmt: skip
    for regex, names in sorted(topics.regexes.items()):
        out.values([regex, topics.resolved_at.get(regex, -1), int(names is not None), list(names or ())])
    for name, view in sorted(topics.views.items()):
        out.values([name, view.id, view.partitions, view.catalog])
    for _, member in sorted(group.members.items()):
        _dump_member(member, out)
    for name, target in sorted({} if draft is None else draft.rows.items()):
        out.values([name, *_masks(target)])


def load(group: Membership, source: Reader) -> None:
    """Fill a new group."""
    row = source.row()
    group.epoch, group.assignment_epoch, group.revision, group.since_ms = (row.number() for _ in range(4))
    regexes, views, members, drafted = (row.number() for _ in range(4))
    session, slices = SessionId(row.number()), row.number()
    for _ in range(regexes):
        row = source.row()
        regex, catalog, resolved, names = row.text(), row.number(), row.number(), row.texts()
        group.topics.restore(regex, tuple(names) if resolved else None, catalog)
    for _ in range(views):
        row = source.row()
        name = row.text()
        group.topics.views[name] = TopicView(TopicId(row.raw()), row.number(), row.number())
    for _ in range(members):
        _enter(group, _load_member(source.row()))
    if drafted:
        group.draft = Draft(session=session, slices=slices, rows={})
        for _ in range(drafted - 1):
            row = source.row()
            drafted_for = MemberId(row.text())
            group.draft.rows[drafted_for] = _load_masks(row)


def show(group: Membership) -> Fields:
    return {
        "kind": "consumer", "state": group.state.value, "epoch": group.epoch,
        "assignmentEpoch": group.assignment_epoch, "stateTimestampMs": group.since_ms,
        "topics": {
            name: {"topicId": view.id.hex(), "partitions": view.partitions, "catalogPosition": view.catalog}
            for name, view in sorted(group.topics.views.items())
        },
        "regexes": {
            regex: None if names is None else list[Shown](names)
            for regex, names in sorted(group.topics.regexes.items())
        },
        "members": [_shown(member) for _, member in sorted(group.members.items())],
    }  # fmt: skip


def _dump_member(member: ConsumerMember, out: Writer) -> None:
    out.values([
        member.id, int(member.instance is not None), member.instance or "", int(member.rack is not None),
        member.rack or "", member.client_id, member.client_host, member.rebalance_ms, list(member.names), member.regex,
        member.assignor, member.home, member.heard, member.epoch, member.previous, member.state.value,
        *_masks(member.target), *_runs(member.assigned), *_runs(member.revoking),
    ])  # fmt: skip


def _load_member(row: Row) -> ConsumerMember:
    name = MemberId(row.text())
    static, instance, racked, rack = row.number(), InstanceId(row.text()), row.number(), row.text()
    return ConsumerMember(
        id=name, instance=instance if static else None, rack=rack if racked else None, client_id=row.text(),
        client_host=row.text(), rebalance_ms=row.number(), names=tuple(row.texts()), regex=row.text(),
        assignor=row.text(), home=SessionId(row.number()), heard=row.number(), epoch=row.number(),
        previous=row.number(), state=MemberState(row.number()), target=_load_masks(row),
        assigned=_load_runs(row), revoking=_load_runs(row),
    )  # fmt: skip


def _enter(group: Membership, member: ConsumerMember) -> None:
    """Put a member into the places that are derived from it."""
    group.members[member.id] = member
    if member.instance is not None:
        group.statics[member.instance] = member.id
    member.names = group.topics.add(member.names, member.regex)
    for runs in (member.assigned, member.revoking):
        for topic, parts in runs.items():
            group.owned[topic] = group.owned.get(topic, 0) | held(parts)


def _masks(masks: Masks) -> list[Small]:
    return [sorted(masks), [to_bytes(mask) for _, mask in sorted(masks.items())]]


def _load_masks(row: Row) -> Masks:
    return {TopicId(topic): from_bytes(raw) for topic, raw in zip(row.raws(), row.raws(), strict=True)}


def _runs(runs: Runs) -> list[Small]:
    """Column by column: a topic stands once for each of its runs."""
    flat = [(topic, since, mask) for topic, parts in sorted(runs.items()) for since, mask in parts]
    return [
        [topic for topic, _, _ in flat], [since for _, since, _ in flat], [to_bytes(mask) for _, _, mask in flat],
    ]  # fmt: skip


def _load_runs(row: Row) -> Runs:
    runs: Runs = {}
    for topic, since, raw in zip(row.raws(), row.numbers(), row.raws(), strict=True):
        runs[TopicId(topic)] = (*runs.get(TopicId(topic), ()), (since, from_bytes(raw)))
    return runs


def _shown(member: ConsumerMember) -> Fields:
    return {
        "memberId": member.id, "instanceId": member.instance, "rackId": member.rack, "clientId": member.client_id,
        "clientHost": member.client_host, "rebalanceTimeoutMs": member.rebalance_ms, "home": member.home,
        "names": list[Shown](member.names), "regex": member.regex, "assignor": member.assignor,
        "epoch": member.epoch, "state": member.state.name, "target": _partitions(member.target),
        "assigned": _partitions(masks_of(member.assigned)), "revoking": _partitions(masks_of(member.revoking)),
    }  # fmt: skip


def _partitions(masks: Masks) -> Fields:
    return {topic.hex(): list[Shown](partitions_of(mask)) for topic, mask in sorted(masks.items())}
