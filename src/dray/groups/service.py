"""All that a broker does about groups, put together: one keeper for each domain, and what handlers ask."""

import asyncio
from collections.abc import Coroutine

from dray.clock import Clock
from dray.groups.admin import GroupAdmin
from dray.groups.classic import ClassicService
from dray.groups.configs import GroupConfigService
from dray.groups.consumer import ConsumerService
from dray.groups.consumer_keeper import ConsumerKeeper
from dray.groups.homes import Homes
from dray.groups.keeper import GroupKeeper
from dray.groups.placement import BrokerOrder
from dray.groups.settings import GroupSettings
from dray.groups.targets import ConsumerKeeping
from dray.groups.topics import TopicViews
from dray.ids import Entropy
from dray.offload import Offload
from dray.replica.domains import Domains
from dray.topics.service import TopicService


class GroupService:
    """The groups of a cluster, as one of its brokers serves them."""

    def __init__(
        self,
        *,
        domains: Domains,
        topics: TopicService,
        routing: BrokerOrder,
        clock: Clock,
        entropy: Entropy,
        offload: Offload,
        settings: GroupSettings,
    ) -> None:
        self._domains = domains
        self.homes = {domain: Homes(replica, clock) for domain, replica in domains.all.items()}
        self.keepers = {
            domain: GroupKeeper(replica, self.homes[domain], routing, clock, settings.step_in_ms)
            for domain, replica in domains.all.items()
        }
        self.classic = ClassicService(
            domains=domains, homes=self.homes, clock=clock, entropy=entropy, settings=settings
        )
        self.configs = GroupConfigService(domains=domains, bounds=settings.group_configs)
        views = TopicViews(domains=domains, topics=topics, offload=offload)
        self.consumers = ConsumerService(
            domains=domains, views=views, homes=self.homes, configs=self.configs, clock=clock, entropy=entropy,
            offload=offload, limits=settings.consumers,
        )  # fmt: skip
        self.consumer_keepers = {
            domain: ConsumerKeeper(
                replica=replica, catalog=domains.catalog, keeper=self.keepers[domain], configs=self.configs,
                routing=routing, clock=clock, step_in_ms=settings.step_in_ms,
                keeping=ConsumerKeeping(
                    views=views, clock=clock, offload=offload, pace=settings.targets,
                    assignors=settings.consumer_assignors,
                ),
            )
            for domain, replica in domains.all.items()
        }  # fmt: skip
        domains.welcome(self)
        self.admin = GroupAdmin(domains=domains, topics=topics)

    async def run(self) -> None:
        """Keep the groups, for ever."""
        async with asyncio.TaskGroup() as tasks:
            self._domains.tend(tasks, self._keep)
            self._domains.tend(tasks, lambda domain: (self.consumer_keepers[domain].run(),))

    def _keep(self, domain: int) -> tuple[Coroutine[None, None, None]]:
        if not self._domains.is_whole:  # it was away, and nothing that was timed before counts any more (GS6)
            self.homes[domain].clear()
            self.keepers[domain].clear()
            self.consumer_keepers[domain].clear()
        return (self.keepers[domain].run(),)

    def is_busy(self, domain: int) -> bool:
        """Whether members are at home here: they are timed here and nowhere else (DL2)."""
        return self.homes[domain].is_busy

    def leave(self, domain: int) -> None:
        """Nobody is at home here who would have to be told."""

    def stop(self) -> None:
        """Whoever waits for a group must ask another broker; whoever beats here goes on there."""
        self.classic.stop()
        self.consumers.stop()
