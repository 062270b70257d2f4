"""The catalog."""

from dray.machine import checkpoint
from dray.machine.names import TopicId
from dray.machine.streams import CloseStream, OpenStream
from dray.machine.topics import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    GivePartitions,
    PartitionsGiven,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TopicGone,
    TopicReady,
    TopicState,
)
from dray.machine.verdict import Done, Refused, Why

from .shop import Shop


def create(shop: Shop, name: str, partitions: int = 2, topic_id: TopicId | None = None):
    return shop.writer.do(CreateTopic(topic_id=topic_id or shop.topic_id(), name=name, partitions=partitions))


def why(verdict) -> Why:
    assert isinstance(verdict, Refused), verdict
    return verdict.why


def names(shop: Shop) -> list[str]:
    return [topic.name for topic in shop.machine.topics.visible()]


def open_all(shop: Shop, created) -> None:
    for partition, stream in enumerate(created.streams):
        assert shop.writer.do(OpenStream(stream=stream, topic_id=created.topic_id, partition=partition)) == Done()


def test_a_topic_that_is_to_have_more_is_not_ready_before_it_has_them():
    """T5: and a checkpoint remembers how many that are."""
    shop = Shop(version=2)
    created = shop.writer.do(CreateTopic(topic_id=shop.topic_id(), name="many", partitions=2, total=5))
    open_all(shop, created)
    assert why(shop.writer.do(TopicReady(topic_id=created.topic_id))) is Why.STATE
    assert shop.writer.do(GivePartitions(topic_id=created.topic_id, limit=2)) == PartitionsGiven(left=1)
    loaded = checkpoint.load(checkpoint.dump(shop.machine)).topics.find(created.topic_id)
    assert (loaded.wanted, loaded.lacking, loaded.unfinished()) == (5, 1, True)
    assert shop.writer.do(GivePartitions(topic_id=created.topic_id, limit=2)) == PartitionsGiven(left=0)
    assert shop.writer.do(GivePartitions(topic_id=created.topic_id, limit=2)) == PartitionsGiven(left=0)
    topic = shop.machine.topics.find(created.topic_id)
    for partition, stream in enumerate(topic.streams):
        shop.writer.do(OpenStream(stream=stream, topic_id=topic.id, partition=partition))
    assert shop.writer.do(TopicReady(topic_id=topic.id)) == Done()
    assert (topic.visible, topic.unfinished()) == (5, False)
    assert why(shop.writer.do(AlterTopic(topic_id=topic.id, total=4))) is Why.STATE
    assert why(shop.writer.do(GivePartitions(topic_id=TopicId(b"?" * 16)))) is Why.NOT_FOUND


def test_a_topic_is_visible_with_all_its_partitions_or_not_at_all():
    """T5, R-191"""
    shop = Shop()
    created = create(shop, "t", 3)
    assert isinstance(created, TopicCreated)
    assert names(shop) == []
    assert [topic.name for topic in shop.machine.topics.unfinished()] == ["t"]
    assert why(shop.writer.do(TopicReady(topic_id=created.topic_id))) is Why.STATE
    open_all(shop, created)
    applied = shop.writer.send(TopicReady(topic_id=created.topic_id))
    assert applied.catalog_changed
    assert names(shop) == ["t"]
    assert shop.machine.topics.named("t").visible == 3
    assert not list(shop.machine.topics.unfinished())


def test_two_creations_of_one_name_make_one_topic():
    """T3, R-042, R-191"""
    shop = Shop()
    first, second = shop.topic_id(), shop.topic_id()
    assert isinstance(create(shop, "t", topic_id=first), TopicCreated)
    assert why(create(shop, "t", topic_id=second)) is Why.EXISTS
    assert shop.machine.topics.named("t").id == first


def test_the_same_creation_again_gets_the_same_answer():
    shop = Shop()
    topic_id = shop.topic_id()
    assert create(shop, "t", topic_id=topic_id) == create(shop, "t", topic_id=topic_id)
    assert why(create(shop, "u", topic_id=topic_id)) is Why.EXISTS


def test_topic_ids_are_not_zero():
    """T2, R-023"""
    assert why(create(Shop(), "t", topic_id=TopicId(bytes(16)))) is Why.MALFORMED


def test_a_deleted_name_is_free_at_once_and_its_successor_has_other_ids():
    """T3, T4, R-023, R-193"""
    shop = Shop()
    old = shop.topic("t", 2)
    topic = shop.machine.topics.named("t")
    shop.append((old[0], 5))
    assert shop.writer.do(DeleteTopic(topic_id=topic.id)) == TopicDeleted(topic_id=topic.id, streams=tuple(old))
    assert names(shop) == []
    assert shop.machine.topics.named("t") is None
    new = create(shop, "t")
    assert new.name_existed_before
    assert not set(new.streams) & set(old)
    assert why(shop.writer.do(TopicGone(topic_id=topic.id))) is Why.STATE
    shop.writer.send(*(CloseStream(stream=stream) for stream in old))
    assert shop.writer.do(TopicGone(topic_id=topic.id)) == Done()
    assert shop.writer.do(TopicGone(topic_id=topic.id)) == Done()
    assert shop.machine.topics.find(topic.id) is None
    assert why(shop.writer.do(DeleteTopic(topic_id=topic.id))) is Why.NOT_FOUND
    open_all(shop, new)
    assert shop.append((new.streams[0], 1))[0].base == 0


def test_a_topic_that_was_not_deleted_is_not_gone():
    shop = Shop()
    shop.topic("t", 1)
    topic = shop.machine.topics.named("t")
    assert why(shop.writer.do(TopicGone(topic_id=topic.id))) is Why.STATE
    assert topic.state is TopicState.READY


def test_added_partitions_become_visible_together_and_change_no_others():
    """T4, T5, R-023"""
    shop = Shop()
    old = shop.topic("t", 2)
    topic = shop.machine.topics.named("t")
    altered = shop.writer.do(AlterTopic(topic_id=topic.id, partitions=5))
    assert isinstance(altered, TopicAltered)
    assert topic.streams == [*old, *altered.added]
    assert len(altered.added) == 3
    assert (topic.visible, topic.unfinished()) == (2, True)
    for partition, stream in enumerate(altered.added, start=2):
        shop.writer.send(OpenStream(stream=stream, topic_id=topic.id, partition=partition))
    shop.writer.send(TopicReady(topic_id=topic.id))
    assert (topic.visible, topic.unfinished()) == (5, False)
    assert why(shop.writer.do(AlterTopic(topic_id=topic.id, partitions=4))) is Why.STATE


def test_partitions_that_came_after_the_streams_were_opened_are_not_shown():
    """T5: the catalog cannot see into other domains (seed topics/526616)."""
    shop = Shop(version=2, domains=2)
    topic_id = create(shop, "t", 2).topic_id
    assert shop.writer.do(TopicReady(topic_id=topic_id, partitions=2)) == Done()
    topic = shop.machine.topics.find(topic_id)
    for partitions in (3, 5):
        assert isinstance(shop.writer.do(AlterTopic(topic_id=topic_id, partitions=partitions)), TopicAltered)
    for said, visible in ((3, 3), (2, 3), (5, 5), (3, 5)):
        assert shop.writer.do(TopicReady(topic_id=topic_id, partitions=said)) == Done()
        assert (topic.visible, topic.unfinished()) == (visible, visible < 5)
    assert why(shop.writer.do(TopicReady(topic_id=topic_id, partitions=6))) is Why.STATE


def test_configs_are_set_removed_and_guarded_by_a_revision():
    shop = Shop()
    shop.topic("t", 1)
    topic = shop.machine.topics.named("t")
    assert shop.writer.do(AlterTopic(topic_id=topic.id, set={"b": "1", "a": "2"})).revision == 1
    assert list(topic.configs.items()) == [("a", "2"), ("b", "1")]
    stale = AlterTopic(topic_id=topic.id, set={"a": "3"}, expected_revision=0)
    assert why(shop.writer.do(stale)) is Why.STALE
    fresh = AlterTopic(topic_id=topic.id, set={"a": "3"}, remove=("b",), expected_revision=1)
    assert shop.writer.do(fresh).revision == 2
    assert topic.configs == {"a": "3"}


def test_a_topic_has_a_bounded_number_of_configs():
    shop = Shop()
    shop.topic("t", 1)
    topic = shop.machine.topics.named("t")
    verdicts = [
        shop.writer.do(AlterTopic(topic_id=topic.id, set={f"{start}.{k}": "" for k in range(200)}))
        for start in range(3)
    ]
    assert why(verdicts[2]) is Why.LIMIT
    assert len(topic.configs) == 400


def test_the_catalog_is_domain_zero():
    shop = Shop(domain=2, domains=4)
    assert why(create(shop, "t")) is Why.FOREIGN


def test_the_oldest_of_too_many_former_names_are_forgotten_also_after_a_restart(monkeypatch):
    """K2"""
    monkeypatch.setattr("dray.machine.topics.MAX_FORMER_NAMES", 2)
    shop = Shop()
    for name in ("c", "b", "a"):
        if name == "a":
            shop.tape.machine = shop.machine = checkpoint.load(checkpoint.dump(shop.machine))
        shop.writer.do(DeleteTopic(topic_id=create(shop, name).topic_id))
    assert [create(shop, name).name_existed_before for name in ("c", "b", "a")] == [False, True, True]
