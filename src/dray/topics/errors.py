"""What can be wrong with a request about topics."""

from dray.errors import Conflict, Invalid, NotFound


class UnknownTopic(NotFound):
    """No topic has this name."""


class UnknownTopicId(UnknownTopic):
    """No topic has this id: it was deleted, and perhaps made again."""


class UnknownPartition(UnknownTopic):
    """The topic has no such partition."""


class TopicExists(Conflict):
    """A topic of this name exists."""


class BadTopicName(Invalid):
    """A name is 1 to 249 letters, digits, dots, underscores or hyphens, and neither . nor .."""


class BadPartitions(Invalid):
    """The number of partitions is not one a topic can have."""


class BadReplication(Invalid):
    """The replication factor is not one Kafka would take."""


class BadTopicConfig(Invalid):
    """A config key is unknown, or its value is not one it can have."""
