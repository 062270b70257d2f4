"""What is left of etcd's quota, and what is done about it.

etcd refuses every write, once its file has reached its quota, until space is
given back, the file is written anew and the alarm is taken away. A delete is
none of those writes, so a trim passes. All of etcd shares one quota.

    fill     50 %   checkpoints are made early, and the log is kept no further back than they need
             60 %   appends wait, the longer the fuller it is
            100 %   appends are refused; trimmed, each member's file is written anew and the alarm taken away

Invariants
    LG29  Before etcd is full, appends wait and history goes; after it was
          full, a trim is enough to go on.
"""

import asyncio
from typing import Final

import grpc.aio

from dray.clock import Clock
from dray.errors import DrayError
from dray.log.etcd import etcd_pb2 as pb
from dray.log.etcd.members import EtcdPeer, Members
from dray.log.telemetry import ENGINE_FULL, ENGINE_HEALED
from dray.telemetry import logger

QUOTA_BYTES: Final = 2 << 30
"""etcd's default; versions before 3.6 do not say theirs."""
CROWDED: Final = 0.5
_SLOWED: Final = 0.6
_LOWEST: Final = 0.9
_PAUSE_S: Final = 0.25
_FRESH_S: Final = 5.0
_HEALABLE: Final = 0.8
_HOPES: Final = 5
"""How often files are written anew after a trim before etcd tells of room: it does not while nobody writes."""


class EtcdRoom:
    """Of the etcd that one log is in."""

    def __init__(self, members: Members, clock: Clock, quota_bytes: int | None = None) -> None:
        self._members = members
        self._clock = clock
        self._quota_bytes = quota_bytes
        self._looked_ns: int | None = None
        self._looking: asyncio.Task[None] | None = None
        self._hopes = 0
        self.fill = 0.0
        self.is_full = False

    def gave_back(self) -> None:
        """Something was deleted and compacted."""
        self._hopes = _HOPES

    @property
    def pause_s(self) -> float:
        """How long an append has to wait (LG29)."""
        return _PAUSE_S * min(1.0, max(0.0, (self.fill - _SLOWED) / (_LOWEST - _SLOWED)))

    def look_soon(self) -> None:
        """Ask etcd, if that was not done a moment ago; nobody waits for it."""
        now = self._clock.boot_ns()
        if self._looking is None and (self._looked_ns is None or now - self._looked_ns > _FRESH_S * 1e9):
            self._looked_ns = now
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        try:
            await self.look()
        except (grpc.aio.AioRpcError, DrayError, TimeoutError):
            pass  # who appends learns more about it
        finally:
            self._looking = None

    async def look(self) -> None:
        """Ask etcd how full it is, and mend it if it is full and need not be."""
        status = await self._members.call(lambda member: member.status, pb.StatusRequest())
        was, self.is_full = self.is_full, any("NOSPACE" in error for error in status.errors)
        self.fill = self._fill(status)
        if self.is_full and not was:
            logger().error(ENGINE_FULL, fill=round(self.fill, 2), bytes=status.db_size)
        if self.is_full and (self.fill < _HEALABLE or self._hopes):
            self._hopes = max(0, self._hopes - 1)
            await self._heal()

    async def _heal(self) -> None:
        fullest = 0.0
        for member in self._members.all:  # one after the other: each stands still meanwhile
            await self._members.call(lambda one: one.defragment, pb.DefragmentRequest(), member, slow=True)
            fullest = max(fullest, self._fill(await self._members.call(_status, pb.StatusRequest(), member)))
        if fullest >= _HEALABLE:
            return
        self.fill = fullest
        alarms = await self._members.call(_alarm, pb.AlarmRequest())
        for raised in alarms.alarms:
            if raised.alarm == pb.AlarmRequest.NOSPACE:
                request = pb.AlarmRequest(
                    action=pb.AlarmRequest.DEACTIVATE, member_id=raised.member_id, alarm=pb.AlarmRequest.NOSPACE
                )
                await self._members.call(_alarm, request)
        self.is_full = False
        logger().warning(ENGINE_HEALED, fill=round(self.fill, 2))

    def _fill(self, status: pb.StatusResponse) -> float:
        quota = self._quota_bytes or status.db_size_quota or QUOTA_BYTES
        return (status.db_size_in_use or status.db_size) / quota

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)


def _status(member: EtcdPeer) -> "grpc.aio.UnaryUnaryMultiCallable[pb.StatusRequest, pb.StatusResponse]":
    return member.status


def _alarm(member: EtcdPeer) -> "grpc.aio.UnaryUnaryMultiCallable[pb.AlarmRequest, pb.AlarmResponse]":
    return member.alarm
