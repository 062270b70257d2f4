"""python -m tools.peers.oxia_double DIR --ports PORT,PORT --orders PORT: the double's process; SIGTERM ends it well."""

import argparse
import asyncio
import signal
import sys
from functools import partial
from pathlib import Path

from tools.peers.oxia_double.server import Cluster, take_orders
from tools.peers.oxia_double.shard import CannotApply


async def serve(cluster: Cluster, orders: int) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    for node in cluster.nodes:
        await node.start()
    await asyncio.start_server(partial(take_orders, cluster), "127.0.0.1", orders)
    await ended.wait()
    for node in cluster.nodes:
        await node.stop()
    for shard in cluster.shards.values():
        shard.flush()


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.peers.oxia_double")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--ports", required=True)
    parser.add_argument("--orders", type=int, required=True)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--natural", action="store_true", help="sort keys by their bytes")
    parser.add_argument("--segment-bytes", type=int, default=64 << 20)
    wanted = parser.parse_args()
    try:
        cluster = Cluster(
            wanted.directory, map(int, wanted.ports.split(",")), wanted.shards, is_natural=wanted.natural,
            segment_bytes=wanted.segment_bytes,
        )  # fmt: skip
    except CannotApply as error:
        sys.exit(f"failed to applies wal entries to db: {error}")
    await serve(cluster, wanted.orders)


if __name__ == "__main__":
    asyncio.run(main())
