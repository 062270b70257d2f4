"""Records become one WAL object in a directory; a damaged copy of it is found out.

Run it with `make demo`, or `python examples/wal_object.py [DIR]`.
"""

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.errors import DrayError
from dray.ids import SystemEntropy
from dray.objects.files import FileObjects
from dray.objects.paths import WalName
from dray.offload import ThreadOffload
from dray.records import NewRecord, build_batch, one_batch, records_of
from dray.wal import codec
from dray.wal.codec import Batch
from dray.wal.ids import LogId, wal_id


async def run(directory: Path) -> None:
    clock, offload = SystemClock(), ThreadOffload(2)
    now = clock.wall_ms()
    name = wal_id(LogId(SystemEntropy().random_bytes(8)), session=1, counter=1)
    chunks = []
    for stream in (1 << 16, 2 << 16):
        rows = [
            NewRecord(key=b"k%d" % n, value=b"record %d of stream %d" % (n, stream), timestamp=now) for n in range(3)
        ]
        chunks.append((stream, [Batch(build_batch(rows), len(rows), now, now)]))
    encoded = codec.encode(name, 0, now, chunks)
    path = WalName.of(zone="a", domain=0, created_ms=now, wal_id=name).path()
    store = FileObjects(directory, LocalDisk(), offload)
    await store.open()
    await store.put(path, encoded.parts)
    print(f"wrote   {path}\n        {encoded.size} bytes, durable before this line was printed")

    whole = codec.decode(await store.get(path))
    for chunk in whole.chunks:
        for _, data in whole.batches(chunk):
            for record in records_of(one_batch(data), base_offset=0):
                print(
                    f"read    stream {chunk.stream >> 16} offset {record.offset}: {bytes(record.value or b'').decode()}"
                )

    copy = directory / "copy.wo"
    shutil.copy(directory / path, copy)
    raw = bytearray(copy.read_bytes())
    raw[len(raw) // 2] ^= 0x10
    copy.write_bytes(raw)
    for what, data in (("one bit flipped", bytes(raw)), ("four bytes cut", bytes(raw[:-4]))):
        try:
            codec.decode(data)
        except DrayError as error:
            print(f"damaged {what}: {error}")
    await store.close()
    offload.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(run(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary)))
