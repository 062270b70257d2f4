"""What Dray calls a buffer: contiguous bytes that are passed on without a copy."""

from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
