"""What an operator should know of the etcd that keeps the log: who answers, how full it is, who compacts it.

How a member was started is not in its API. Where it shows its command line
(`/debug/vars`, without TLS), that is read for its quota and its compaction.
"""

import asyncio
import json
import urllib.request
from typing import Final

import grpc.aio

from dray.errors import Unavailable
from dray.log.etcd import etcd_pb2 as pb
from dray.log.etcd.members import Members
from dray.log.etcd.room import CROWDED, QUOTA_BYTES
from dray.log.survey import EngineSurvey
from dray.log.urls import EtcdLogs

_ASK_S: Final = 5.0
_QUOTA: Final = "--quota-backend-bytes"
_COMPACTION: Final = "--auto-compaction-retention"


async def survey(url: EtcdLogs) -> EngineSurvey:
    """Ask every member."""
    members = Members(url, _ASK_S)
    said: list[str] = []
    failed = advice = ""
    try:
        for member in members.all:
            try:
                await members.ready()
                status = await members.call(lambda one: one.status, pb.StatusRequest(), member)
            except (grpc.aio.AioRpcError, Unavailable) as error:
                reason = error.details() if isinstance(error, grpc.aio.AioRpcError) else error
                said.append(f"{member.endpoint} does not answer: {reason}")
                advice = "start the member, or correct log.url"
                continue
            flags = {} if url.secure else await asyncio.to_thread(_flags, member.endpoint)
            quota = status.db_size_quota or int(flags.get(_QUOTA) or 0) or QUOTA_BYTES
            used = status.db_size_in_use or status.db_size
            compaction = flags.get(_COMPACTION, "not told" if not flags else "by the log's trims alone")
            said.append(
                f"{member.endpoint} is etcd {status.version}, {used / quota:.0%} of its quota of {quota >> 20} MiB "
                f"used, compaction: {compaction}"
            )
            if any("NOSPACE" in one for one in status.errors):
                failed = "it takes nothing more: raise --quota-backend-bytes, or delete what others keep there"
            elif used > CROWDED * quota:
                advice = "raise --quota-backend-bytes before it is full: appends are slowed from 60 % on"
    finally:
        await members.close()
    if advice.startswith("start") and len([one for one in said if "does not answer" in one]) == len(members.all):
        failed = advice
    return EngineSurvey(said=tuple(said), failed=failed, next=advice)


def _flags(endpoint: str) -> dict[str, str]:
    """The flags of a member that shows them; none otherwise."""
    try:
        with urllib.request.urlopen(f"http://{endpoint}/debug/vars", timeout=_ASK_S) as answer:
            words = json.load(answer).get("cmdline", [])
    except (OSError, ValueError):
        return {}
    found: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, has_value, value = str(word).partition("=")
        if name.startswith("--"):
            found[name] = value if has_value else str(following)
    return found
