"""A consumer group under any commands from three brokers that live and die."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dray.machine import checkpoint
from dray.machine.groups.beats import Beat, Beaten, RegexRow, SetTarget, SetTopics, TopicRow
from dray.machine.groups.codes import Denied, GroupCode, Removed
from dray.machine.groups.commands import DropGroup, EndPhase, JoinClassic, Rehome, Removal, RemovalRow, RemoveMembers
from dray.machine.groups.consumer import ConsumerGroup
from dray.machine.groups.masks import Masks, held, masks_of
from dray.machine.groups.members import AWAY
from dray.machine.groups.reconcile import MemberState
from dray.machine.machine import Machine
from dray.machine.offsets import CommitOffsets, OffsetRow, OffsetsCommitted
from dray.machine.verdict import Done, Verdict

from .consumers import GROUP, IDS, Scene, owned_rows, target_rows

MEMBERS = st.sampled_from(["m0", "m1", "m2", "m3", "m4"])
INSTANCES = st.sampled_from([None, None, "i0", "i1"])
TOPICS = st.sampled_from(sorted(IDS.values()))
MASKS = st.dictionaries(TOPICS, st.integers(1, 31), max_size=3)
NAMES = st.lists(st.sampled_from("abc"), max_size=3).map(tuple)
REGEXES = st.sampled_from(["", "[ab]", ".*"])
ROWS = st.lists(
    st.builds(
        lambda name, partitions, again: TopicRow(
            name=name, topic_id=IDS[name] if not again else IDS[name][:15] + b"2", partitions=partitions
        ),
        st.sampled_from("abc"), st.integers(0, 5), st.booleans(),
    ),
    max_size=3,
).map(tuple)  # fmt: skip
BROKERS = st.integers(0, 2)


class Everybody(RuleBasedStateMachine):
    """Members, keepers, strangers and the end of sessions, in any order."""

    @initialize()
    def begin(self) -> None:
        self.scene = Scene()
        self.homes: dict[str, int] = {}
        self.highest = 0
        self.assigned_at = 0
        self.seen: dict[str, int] = {}

    @property
    def group(self) -> ConsumerGroup | None:
        return self.scene.machine.groups.consumer(GROUP)

    def do(self, at: int, command) -> Verdict:
        return self.scene.brokers[at].do(command)

    @rule(at=BROKERS, member=MEMBERS, instance=INSTANCES, names=NAMES, regex=st.none() | REGEXES, rows=ROWS)
    def somebody_joins(self, at, member, instance, names, regex, rows) -> None:
        self.beat(at, member, 0, instance, {}, names=names, regex=regex, topics=rows, rebalance_ms=9)

    @rule(
        at=BROKERS, member=MEMBERS, instance=INSTANCES, step=st.sampled_from([0, 0, 0, 0, -1, 1]),
        says=st.sampled_from(["nothing", "assigned", "assigned", "all", "none"]), names=st.none() | NAMES,
        regex=st.none() | REGEXES,
    )  # fmt: skip
    def somebody_beats(self, at, member, instance, step, says, names, regex) -> None:
        known = self.group.members.get(member) if self.group else None
        if known is None:
            self.beat(at, member, 1, instance, None)
            return
        everything = {
            topic: held((*known.assigned.get(topic, ()), *known.revoking.get(topic, ())))
            for topic in known.assigned | known.revoking
        }
        said = {"nothing": None, "assigned": masks_of(known.assigned), "all": everything, "none": {}}[says]
        own = known.instance if instance is None else instance
        self.beat(at, member, max(1, known.epoch + step), own, said, names=names, regex=regex)

    @rule(at=BROKERS, member=MEMBERS, said=MASKS, alien=st.booleans())
    def somebody_lies(self, at, member, said, alien) -> None:
        known = self.group.members.get(member) if self.group else None
        self.beat(at, member, max(1, known.epoch if known else 3), None, said, alien=alien)

    def beat(self, at, member, epoch, instance, said: Masks | None, **more) -> None:
        group = self.group
        before = group.members.get(member) if group else None
        was = None if before is None else (before.epoch, before.previous, before.state, masks_of(before.revoking))
        command = Beat(
            group=GROUP, member=member, epoch=epoch, instance=instance, owned=owned_rows(said),
            catalog=self.scene.machine.position, **more,
        )  # fmt: skip
        state = _form(group)
        verdict = self.do(at, command)
        if isinstance(verdict, Denied):
            if group is not None:
                assert _form(group) == state, "a refused command changed something"
            return
        assert isinstance(verdict, Beaten), verdict
        group = self.group
        assert group is not None
        known = group.members[member]
        self.homes = {one: home for one, home in self.homes.items() if one in group.members}
        self.homes[member] = self.scene.brokers[at].session  # G5
        assert verdict.epoch == known.epoch
        assert dict(verdict.assigned) == masks_of(known.assigned)
        for row in more.get("topics", ()):
            if group.topics.wants(row.name):
                self.seen[row.name] = command.catalog
        if was is not None and was[0] not in (0, AWAY) and known.epoch != was[0] and known.previous == was[0]:
            assert known.epoch == group.assignment_epoch  # G7
            if was[2] is MemberState.UNREVOKED and was[3]:
                assert said is not None
                assert not any(said.get(topic, 0) & mask for topic, mask in was[3].items())  # G7

    @rule(at=BROKERS, wanted=st.dictionaries(MEMBERS, MASKS, max_size=4), late=st.booleans(), data=st.data())
    def a_keeper_sends_a_target(self, at, wanted, late, data) -> None:
        group = self.group
        if group is None:
            return
        epoch = group.epoch - late
        members = sorted(wanted)
        cut = data.draw(st.integers(0, len(members)))
        slices = [members[:cut], members[cut:]] if cut else [members]
        behind, before = group.is_behind, group.assignment_epoch
        for number, names in enumerate(slices):
            last = number == len(slices) - 1
            command = SetTarget(
                group=GROUP, epoch=epoch, slice=number, last=last,
                rows=target_rows({name: wanted[name] for name in names}),
            )  # fmt: skip
            verdict = self.do(at, command)
            known = not last or wanted.keys() <= group.members.keys()
            assert isinstance(verdict, Done) == (behind and not late and known)  # G8
            if not last or not known:
                assert group.assignment_epoch == before  # G8
            if last and isinstance(verdict, Done):
                assert group.assignment_epoch == group.epoch
                for name, masks in wanted.items():
                    assert group.members[name].target == masks

    @rule(at=BROKERS, wanted=st.dictionaries(MEMBERS, MASKS, max_size=2), number=st.integers(0, 2))
    def a_keeper_stops_in_the_middle(self, at, wanted, number) -> None:
        if self.group is not None:
            self.do(at, SetTarget(
                group=GROUP, epoch=self.group.epoch, slice=number, last=False, rows=target_rows(wanted)
            ))  # fmt: skip

    @rule(
        at=BROKERS, rows=ROWS, back=st.sampled_from([0, 0, 3]),
        regexes=st.lists(st.builds(RegexRow, regex=REGEXES, names=NAMES.map(lambda names: tuple(sorted(set(names)))))),
    )  # fmt: skip
    def a_keeper_sees_the_catalog(self, at, rows, back, regexes) -> None:
        group = self.group
        if group is None:
            return
        catalog = max(0, self.scene.machine.position - back)
        views = dict(group.topics.views)
        self.do(at, SetTopics(group=GROUP, catalog=catalog, topics=rows, regexes=tuple(regexes)))
        for name, view in group.topics.views.items():
            if views.get(name) != view:
                assert view.catalog == catalog
                assert name not in views or views[name].catalog < catalog  # G8

    @rule(at=BROKERS, member=MEMBERS, instance=INSTANCES, reason=st.sampled_from([Removal.LEFT, Removal.AWAY]))
    def somebody_leaves(self, at, member, instance, reason) -> None:
        known = self.group.members.get(member) if self.group else None
        if reason is Removal.AWAY and instance is None:
            return
        row = RemovalRow(member=member, instance=instance)
        verdict = self.do(at, RemoveMembers(group=GROUP, reason=reason, rows=(row,)))
        assert isinstance(verdict, Removed)
        if verdict.codes == (GroupCode.ACCEPTED,):
            assert known is not None
            if reason is Removal.AWAY:
                self.homes[member] = self.scene.brokers[at].session
            else:
                del self.homes[member]

    @rule(
        at=BROKERS, member=MEMBERS, named=BROKERS, old=st.booleans(),
        reason=st.sampled_from([Removal.EXPIRED, Removal.UNREVOKED]),
    )  # fmt: skip
    def somebody_is_said_to_be_silent(self, at, member, named, old, reason) -> None:
        known = self.group.members.get(member) if self.group else None
        home = self.homes.get(member, 0) if old else self.scene.brokers[named].session
        row = RemovalRow(member=member, home=home, since=known.epoch if known else 0)
        verdict = self.do(at, RemoveMembers(group=GROUP, reason=reason, rows=(row,)))
        assert isinstance(verdict, Removed)
        if verdict.codes == (GroupCode.ACCEPTED,):
            live = self.scene.machine.sessions.live
            assert self.homes[member] == home  # G4
            assert home == self.scene.brokers[at].session or home not in live  # G4
            assert reason is Removal.EXPIRED or (known is not None and known.state is MemberState.UNREVOKED)
            del self.homes[member]

    @rule(at=BROKERS, member=MEMBERS)
    def somebody_is_heard_elsewhere(self, at, member) -> None:
        known = self.group is not None and member in self.group.members
        self.do(at, Rehome(group=GROUP, members=(member,)))
        if known:
            self.homes[member] = self.scene.brokers[at].session

    @rule(at=BROKERS, member=MEMBERS, step=st.sampled_from([0, -1, -2, 1]), topic=TOPICS, partition=st.integers(0, 5))
    def somebody_commits(self, at, member, step, topic, partition) -> None:
        known = self.group.members.get(member) if self.group else None
        if known is None:
            return
        epoch = known.epoch + step
        row = OffsetRow(topic_id=topic, partition=partition, offset=1)
        verdict = self.do(at, CommitOffsets(group=GROUP, rows=(row,), generation=epoch, member=member))
        if isinstance(verdict, OffsetsCommitted):
            since = [
                since
                for runs in (known.assigned, known.revoking)
                for since, mask in runs.get(topic, ())
                if mask >> partition & 1
            ]
            assert epoch == known.epoch or (since and since[0] <= epoch < known.epoch)  # G9
        else:
            assert isinstance(verdict, Denied)
            assert epoch != known.epoch

    @rule(index=BROKERS)
    def a_broker_restarts(self, index) -> None:
        before = None if self.group is None else _form(self.group)
        self.scene.restart(index)
        assert before is None or _form(self.group) == before, "the end of a session touches no group"

    @rule(at=BROKERS)
    def the_group_becomes_classic_and_empty_again(self, at) -> None:
        if self.group is None or not self.group.is_empty:
            return
        self.do(at, JoinClassic(
            group=GROUP, member="c", new=True, must_know=False, instance=None, client_id="", client_host="",
            session_ms=10_000, rebalance_ms=10_000, protocol_type="consumer", protocols=(("range", b""),),
            topics=("a",), delay_ms=0, max_size=10, tells_leader=False,
        ))  # fmt: skip
        classic = self.scene.machine.groups.classic(GROUP)
        assert classic is not None
        self.do(at, EndPhase(group=GROUP, tick=classic.tick))
        assert classic.generation > self.highest  # G1
        self.do(at, RemoveMembers(group=GROUP, reason=Removal.LEFT, rows=(RemovalRow(member="c"),)))
        self.highest = classic.generation
        self.assigned_at = 0
        self.seen.clear()

    @rule(at=BROKERS)
    def an_empty_group_is_dropped(self, at) -> None:
        if self.group is not None and self.group.is_empty:
            self.do(at, DropGroup(group=GROUP))
            self.highest = self.assigned_at = 0
            self.seen.clear()

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        """G6, by adding up."""
        union: Masks = {}
        group = self.group
        for member in group.members.values() if group else ():
            for runs in (member.assigned, member.revoking):
                for topic, parts in runs.items():
                    assert held(parts)
                    assert not union.get(topic, 0) & held(parts)
                    union[topic] = union.get(topic, 0) | held(parts)
        assert group is None or union == group.owned

    @invariant()
    def epochs_never_fall(self) -> None:
        """G1."""
        group = self.group
        if group is not None:
            assert group.epoch >= self.highest
            assert self.assigned_at <= group.assignment_epoch <= group.epoch
            self.highest, self.assigned_at = group.epoch, group.assignment_epoch
            assert all(member.epoch <= group.assignment_epoch for member in group.members.values())

    @invariant()
    def homes_are_who_last_named_a_member(self) -> None:
        """G5."""
        group = self.group
        if group is not None:
            assert {name: member.home for name, member in group.members.items()} == self.homes

    @invariant()
    def what_is_derived_can_be_derived(self) -> None:
        """K2: what was dumped and loaded is the same, with its indexes."""
        group = self.group
        if group is None:
            return
        loaded = checkpoint.load(checkpoint.dump(self.scene.machine)).groups.consumer(GROUP)
        assert loaded is not None
        assert (loaded.owned, loaded.statics, loaded.members) == (group.owned, group.statics, group.members)
        assert loaded.draft == group.draft
        assert sorted(loaded.topics.names()) == sorted(group.topics.names())
        assert loaded.topics.views == group.topics.views
        assert set(group.topics.views) <= set(group.topics.names())
        assert set(group.topics.regexes) == {member.regex for member in group.members.values() if member.regex}

    def teardown(self) -> None:
        """Replay is the live state, also over a checkpoint in the middle (M3, K2)."""
        entries = self.scene.tape.entries
        whole = checkpoint.dump(self.scene.machine)
        machine = Machine()
        for position, raw in entries:
            machine.apply(position, raw)
            if position == len(entries) // 2:
                machine = checkpoint.load(checkpoint.dump(machine))
        assert checkpoint.dump(machine) == whole


def _form(group: ConsumerGroup | None) -> object:
    return None if group is None else group.show()


TestEverybody = Everybody.TestCase
TestEverybody.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
