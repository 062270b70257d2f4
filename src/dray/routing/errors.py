"""What a broker says that leaves a client to another one."""

from dray.errors import Conflict
from dray.routing.view import Node


class NotLeader(Conflict):
    """Nothing happened: clients are told of another leader of the partition, and should ask that."""

    def __init__(self, leader: Node, epoch: int) -> None:
        super().__init__("another broker leads the partition", leader=leader.broker_id)
        self.leader = leader
        self.epoch = epoch


class NotCoordinator(Conflict):
    """Nothing happened: clients are told to ask another broker about the group."""
