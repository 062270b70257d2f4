"""The API of a broker: its services as the HTTP server knows them."""

from starlette.applications import Starlette

from dray.config import Config
from dray.log.settings import LogSettings
from dray.log.urls import MemoryLogs
from dray.node.admission import Admission
from dray.node.services import BrokerServices
from dray.servers.http.api import ApiServices, make_api
from dray.servers.http.settings import HttpSettings


def durability_of(config: Config) -> str:
    """What an answer of this broker means."""
    return "memory" if isinstance(config.get(LogSettings).place, MemoryLogs) else "synced"


def served_api(config: Config, services: BrokerServices, admission: Admission) -> Starlette:
    """The application for what is asked over HTTP."""
    plane = services.plane
    asked = ApiServices(
        topics=services.topics, publisher=services.publisher, reads=services.reads, consume=services.consume,
        heaps=services.heaps, domains=plane.domains, routing=services.routing, clock=plane.clock,
        offload=plane.unpack, durability=durability_of(config), access=admission.access,
        keys=admission.keys,
    )  # fmt: skip
    return make_api(asked, config.get(HttpSettings))
