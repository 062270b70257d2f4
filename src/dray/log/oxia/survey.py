"""What an operator should know of the Oxia that keeps the log: who answers, and whether every shard is led."""

from typing import Final

import grpc.aio

from dray.log.oxia import oxia_pb2 as pb
from dray.log.oxia.servers import OxiaPeer, OxiaServers
from dray.log.survey import EngineSurvey
from dray.log.urls import OxiaLogs

_ASK_S: Final = 5.0
_START: Final = "start the server, or correct log.url"


async def survey(url: OxiaLogs) -> EngineSurvey:
    """Ask every server that the URL names; nothing is written."""
    servers = OxiaServers(url, _ASK_S)
    said: list[str] = []
    advice = ""
    found: pb.Assignments | None = None
    try:
        for endpoint in url.endpoints:
            peer = OxiaPeer(url, endpoint)
            try:
                found = await _ask(peer, url.namespace, servers)
                shards = found.namespaces[url.namespace].shards
                led = sum(1 for shard in shards if shard.leader)
                said.append(f"{endpoint} tells of {len(shards)} shards of {url.namespace}, {led} of them led")
                if led < len(shards):
                    advice = "wait until every shard has a leader, or look at Oxia's coordinator"
            except (grpc.aio.AioRpcError, TimeoutError) as error:
                reason = error.details() if isinstance(error, grpc.aio.AioRpcError) else "nobody listens there"
                said.append(f"{endpoint} does not answer: {reason}")
                advice = advice or _advice(reason)
            finally:
                await peer.close()
    finally:
        await servers.close()
    return EngineSurvey(said=tuple(said), failed=advice if found is None else "", next=advice)


async def _ask(peer: OxiaPeer, namespace: str, servers: OxiaServers) -> pb.Assignments:
    """The first that it tells, by the name of the service that it knows."""
    if not await peer.is_there(_ASK_S):
        raise TimeoutError
    for last in (False, True):
        stream = peer.assignments(
            pb.AssignmentsRequest(namespace=namespace), timeout=_ASK_S, metadata=servers.metadata()
        )
        try:
            return await anext(aiter(stream))
        except grpc.aio.AioRpcError as error:
            if last or error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
            peer.use_other_service()
        except StopAsyncIteration:
            break
        finally:
            stream.cancel()
    raise TimeoutError


def _advice(reason: str | None) -> str:
    return "name a namespace that Oxia has, in the path of log.url" if "namespace" in str(reason) else _START
