"""One connection to one broker, and one question at a time.

The broker tells which versions it speaks; each question goes out in the
newest one that both know. Every wait has a deadline.
"""

import asyncio
import struct
from typing import Final, Self, TypeVar

from dray import __version__
from dray.errors import Unavailable
from dray.kafka_client.errors import LostAnswer, NoBroker, NotServed
from dray.servers.kafka.codec import Malformed, Message, Schema, decode, encode
from dray.servers.kafka.messages.api_versions import SCHEMA as API_VERSIONS
from dray.servers.kafka.messages.api_versions import ApiVersionsRequest
from dray.servers.kafka.messages.request_header import CODEC as REQUEST_HEADER
from dray.servers.kafka.messages.request_header import RequestHeader
from dray.servers.kafka.messages.response_header import CODEC as RESPONSE_HEADER

CONNECT_S: Final = 10.0
ANSWER_S: Final = 60.0
FRAME_BYTES: Final = 64 << 20
CLIENT_ID: Final = f"dray/{__version__}"
_FIRST_VERSION: Final = 3
"""Of ApiVersions, which is asked before any version is known; every broker since 2.4 has it."""
_LENGTH: Final = struct.Struct(">i")

Req = TypeVar("Req", bound=Message)
Resp = TypeVar("Resp", bound=Message)


class BrokerLink:
    """A connection to a broker that answers."""

    def __init__(self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.address = address
        self._reader = reader
        self._writer = writer
        self._asked = 0
        self._served: dict[int, tuple[int, int]] = {}

    @classmethod
    async def open(cls, host: str, port: int) -> Self:
        """Connect and learn what the broker speaks.

        Raises:
            NoBroker: nobody answers, or not as a Kafka broker does.
        """
        address = f"{host}:{port}"
        try:
            async with asyncio.timeout(CONNECT_S):
                connection = cls(address, *await asyncio.open_connection(host, port))
        except (OSError, TimeoutError) as error:
            raise NoBroker("no broker answers", address=address) from error
        try:
            request = ApiVersionsRequest(client_software_name="dray", client_software_version=__version__)
            answer = await connection._exchange(API_VERSIONS, _FIRST_VERSION, request)
        except (OSError, EOFError, TimeoutError, Malformed) as error:
            connection.close()
            raise NoBroker("what answers is no Kafka broker", address=address) from error
        connection._served = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        return connection

    def close(self) -> None:
        self._writer.close()

    def serves(self, schema: Schema[Req, Resp]) -> bool:
        """Does the broker have this API at all?"""
        return schema.key in self._served

    def version_of(self, schema: Schema[Req, Resp], most: int) -> int:
        """The version in which a question goes out: the newest that both know, up to `most`."""
        first, last = self._served.get(schema.key, (1, 0))
        version = min(last, schema.last, most)
        if version < max(first, schema.first):
            raise NotServed("the broker does not speak this", api=schema.name, address=self.address)
        return version

    async def ask(self, schema: Schema[Req, Resp], message: Req, *, most: int, changes: bool = False) -> Resp:
        """The answer to one question.

        Raises:
            NotServed: the broker does not know the question.
            Unavailable: there is no answer, and nothing was changed.
            LostAnswer: there is no answer to something that `changes` the cluster.
        """
        version = self.version_of(schema, most)
        try:
            return await self._exchange(schema, version, message)
        except (OSError, EOFError, TimeoutError, Malformed) as error:
            self.close()
            kind = LostAnswer if changes else Unavailable
            raise kind("the broker did not answer", api=schema.name, address=self.address) from error

    async def _exchange(self, schema: Schema[Req, Resp], version: int, message: Req) -> Resp:
        flexible = schema.flexible is not None and version >= schema.flexible
        self._asked += 1
        header = RequestHeader(schema.key, version, self._asked, CLIENT_ID)
        body = b"".join(
            [
                *encode(REQUEST_HEADER.write[2 if flexible else 1], header),
                *encode(schema.request.write[version], message),
            ]
        )
        async with asyncio.timeout(ANSWER_S):
            self._writer.write(_LENGTH.pack(len(body)) + body)
            await self._writer.drain()
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            if not 4 <= length <= FRAME_BYTES:
                raise Malformed("an answer of a length that cannot be", length=length)
            frame = memoryview(await self._reader.readexactly(length))
        # The header of an answer to ApiVersions is the old one, so that anybody can read it.
        form = 1 if flexible and schema.key != API_VERSIONS.key else 0
        told, position, _ = decode(RESPONSE_HEADER.read[form], frame, 0)
        if told.correlation_id != self._asked:
            raise Malformed("an answer to another question", asked=self._asked, told=told.correlation_id)
        answer, _, _ = decode(schema.response.read[version], frame, position)
        return answer
