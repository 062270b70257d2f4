"""What payloads are to a program: bytes, or anything that JSON can say."""

from typing import Final, Protocol, TypeAlias

import msgspec

from dray.client.errors import InvalidRequest

Payload: TypeAlias = "bytes | bool | int | float | str | list[Payload] | dict[str, Payload] | None"


class Codec(Protocol):
    """Values to bytes and back. The flag goes with the message: is it JSON?"""

    def encode(self, value: Payload) -> tuple[bytes, bool]: ...

    def decode(self, content: bytes, is_json: bool) -> Payload: ...


class JsonOrBytes:
    """Bytes stay as they are; everything else is JSON."""

    def encode(self, value: Payload) -> tuple[bytes, bool]:
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value), False
        try:
            return msgspec.json.encode(value), True
        except (TypeError, ValueError) as bad:
            raise InvalidRequest(f"a payload is bytes, or what JSON can say: {bad}") from bad

    def decode(self, content: bytes, is_json: bool) -> Payload:
        if not is_json:
            return content
        found: Payload = msgspec.json.decode(content)
        return found


class BytesOnly:
    """Bytes, whatever the message says of itself."""

    def encode(self, value: Payload) -> tuple[bytes, bool]:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise InvalidRequest("a payload is bytes")
        return bytes(value), False

    def decode(self, content: bytes, is_json: bool) -> Payload:
        return content


JSON_OR_BYTES: Final = JsonOrBytes()
BYTES: Final = BytesOnly()
