"""Heaps over gRPC: `dray.v1`, health, reflection. Loaded only where it is served."""

import os

# The library reads this once, when it is loaded. A broker starts processes and never goes on in a fork of itself; with
# the library's support for that, each start would say on stderr that it is left out.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")  # noqa: TID251
