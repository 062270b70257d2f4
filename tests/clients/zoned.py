"""Brokers in zones, in threads of this process, and clients that name a zone."""

from contextlib import ExitStack
from pathlib import Path

from dray.servers.kafka.codec import Message
from dray.testing import broker
from dray.testing.broker import TestBroker
from tests.golden.asking import Asker

_ESTABLISHED = "01"


class Zoned:
    """Brokers 1, 2 ... in these zones. The first keeps the log, so it stays."""

    def __init__(self, home: Path, *zones: str, **settings: object) -> None:
        self._home = home
        self._zones = zones
        self._settings = settings
        self._stacks: dict[int, ExitStack] = {}
        self.brokers: dict[int, TestBroker] = {}
        for number in range(1, len(zones) + 1):
            self.start(number)

    def start(self, number: int) -> None:
        joins = {} if number == 1 else {"log__url": f"unix:{self._home}/1/meta.sock"}
        stack = ExitStack()
        self.brokers[number] = stack.enter_context(
            broker(
                self._home / str(number), broker__id=number, broker__zone=self._zones[number - 1],
                cluster__domains=4, session__ttl="3s", session__keepalive="1s", **joins, **self._settings,
            )
        )  # fmt: skip
        self._stacks[number] = stack

    def stop(self, number: int) -> None:
        self._stacks.pop(number).close()
        del self.brokers[number]

    def close(self) -> None:
        for number in sorted(self._stacks, reverse=True):
            self.stop(number)

    def at(self, number: int) -> str:
        return self.brokers[number].bootstrap

    def connections(self, number: int) -> int:
        """Open connections of clients at a broker, as the system has them."""
        port = int(self.at(number).rsplit(":", 1)[1])
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return sum(row[1].endswith(f":{port:04X}") and row[3] == _ESTABLISHED for row in rows)


class ZonedAsker(Asker):
    """Speaks the bare protocol under a client id."""

    def __init__(self, bootstrap: str, client_id: str | None) -> None:
        super().__init__(bootstrap)
        self._client_id = client_id

    def send(
        self, schema, version: int, message: Message, correlation: int = 0, client_id: str | None = None
    ) -> None:  # fmt: skip
        super().send(schema, version, message, correlation, self._client_id)
