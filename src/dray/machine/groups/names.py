"""The names in a group, and the fields of commands that carry them."""

from typing import Annotated, Final, NewType, TypeAlias

from msgspec import Meta

MAX_TEXT: Final = 32_767
"""What a text of a request may be long: a length on the wire has 16 bits."""
MAX_BYTES: Final = 1 << 20
MAX_TIMEOUT_MS: Final = (1 << 31) - 1
UNSAID: Final = -1
"""Nobody says how far it had read: an operator's word, which is about whoever is there."""

MemberId = NewType("MemberId", str)
"""Given to a member by the broker that it first asked; never given twice."""

InstanceId = NewType("InstanceId", str)
"""Chosen by whoever runs a static member; the same over restarts."""

GroupField: TypeAlias = Annotated[str, Meta(max_length=MAX_TEXT)]
MemberField: TypeAlias = Annotated[MemberId, Meta(max_length=MAX_TEXT)]
InstanceField: TypeAlias = Annotated[InstanceId, Meta(max_length=MAX_TEXT)]
TextField: TypeAlias = Annotated[str, Meta(max_length=MAX_TEXT)]
BytesField: TypeAlias = Annotated[bytes, Meta(max_length=MAX_BYTES)]
TimeoutField: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_TIMEOUT_MS)]
SeenField: TypeAlias = Annotated[int, Meta(ge=UNSAID, le=(1 << 63) - 1)]
