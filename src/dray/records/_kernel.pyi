from collections.abc import Sequence

from dray.buffers import Buffer
from dray.records.columns import Part, RawColumns

def scan(records: Buffer, count: int, base_timestamp: int) -> tuple[int, int, int]: ...
def to_columns(parts: Sequence[Part], narrow_limit: int = ...) -> RawColumns: ...
def write_records(
    out: bytearray | memoryview, at: int, columns: RawColumns, start: int, end: int, limit_bytes: int, one_time: bool
) -> tuple[int, int, int]: ...
