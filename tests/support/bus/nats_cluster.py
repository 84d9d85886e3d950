"""Several nats-servers on loopback as one cluster, for tests of replicated streams (R3).

Members are `NatsServer` objects, so that a test can kill -9 one of them and start it again.
"""

import asyncio
import http.client
import time
from pathlib import Path

import msgspec
from koordcore.embedded.errors import StartError
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsClusterMembership, NatsServerConfig, NatsUser, Share
from koordcore.embedded.ports import LOOPBACK, free_ports
from koordcore.embedded.process import POLL_SECONDS
from support.until import DEADLINE_SECONDS


class _MetaCluster(msgspec.Struct):
    leader: str = ""
    cluster_size: int = 0
    replicas: list["_Peer"] = msgspec.field(default_factory=list["_Peer"])


class _Peer(msgspec.Struct):
    name: str = ""
    current: bool = False
    offline: bool = False


class _Jsz(msgspec.Struct):
    meta_cluster: _MetaCluster = msgspec.field(default_factory=_MetaCluster)


class NatsCluster:
    """`size` servers in one cluster; ready when a meta leader exists and every member is current."""

    def __init__(
        self,
        directory: Path,
        *,
        size: int = 3,
        name: str = "koord",
        sync_interval: str = "always",
        users: tuple[NatsUser, ...] = (),
        shares: tuple[Share, ...] = (),
        ready_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self.name = name
        self.ready_seconds = ready_seconds
        routes = free_ports(size)
        self.servers = tuple(
            NatsServer(
                NatsServerConfig(
                    name=f"{name}-{index}",
                    directory=directory / f"{name}-{index}",
                    sync_interval=sync_interval,
                    users=users,
                    shares=shares,
                    cluster=NatsClusterMembership(
                        name=name, port=routes[index], routes=tuple(f"{LOOPBACK}:{port}" for port in routes)
                    ),
                    ready_seconds=ready_seconds,
                )
            )
            for index in range(size)
        )

    @property
    def urls(self) -> tuple[str, ...]:
        """The client urls of all members, running or not."""
        return tuple(server.url for server in self.servers)

    async def start(self) -> None:
        """Start every member that does not run, then wait for the meta leader.

        raises  StartError when the cluster did not form in `ready_seconds`; what NatsServer.start raises
        """
        try:
            async with asyncio.TaskGroup() as group:
                for server in self.servers:
                    group.create_task(server.start())
        except BaseExceptionGroup as failures:
            await self.stop()
            raise failures.exceptions[0] from failures
        await self.wait_ready()

    async def wait_ready(self) -> None:
        """Wait until the meta leader sees every running member as current.

        raises  StartError after `ready_seconds`
        """
        deadline = time.monotonic() + self.ready_seconds
        while not await self._has_leader():
            if time.monotonic() > deadline:
                raise StartError(
                    name=f"nats cluster {self.name}",
                    reason=f"no meta leader with all members within {self.ready_seconds:g} s",
                    log_file=None,
                    log_tail="",
                )
            await asyncio.sleep(POLL_SECONDS)

    async def meta_leader(self) -> NatsServer | None:
        """The running member that leads the meta group now; None while there is none."""
        for server in self.servers:
            if server.is_running:
                leader = (await asyncio.to_thread(_meta_cluster, server)).leader
                if leader:
                    return next((member for member in self.servers if member.config.name == leader), None)
        return None

    async def stop(self) -> None:
        """Stop all members at once."""
        await asyncio.gather(*(server.stop() for server in self.servers))

    async def kill(self) -> None:
        """kill -9 all members at once: a power loss of the whole cluster."""
        await asyncio.gather(*(server.kill() for server in self.servers))

    async def __aenter__(self) -> "NatsCluster":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.shield(self.stop())

    async def _has_leader(self) -> bool:
        leader = await self.meta_leader()
        if leader is None or not leader.is_running:
            return False
        seen = await asyncio.to_thread(_meta_cluster, leader)
        running = sum(server.is_running for server in self.servers)
        # The leader lists the others only.
        return sum(peer.current and not peer.offline for peer in seen.replicas) >= running - 1


def _meta_cluster(server: NatsServer) -> _MetaCluster:
    """The meta group as this member sees it; empty when it does not answer. Blocks."""
    connection = http.client.HTTPConnection(LOOPBACK, server.config.monitor_port, timeout=1)
    try:
        connection.request("GET", "/jsz")
        return msgspec.json.decode(connection.getresponse().read(), type=_Jsz).meta_cluster
    except (OSError, http.client.HTTPException, msgspec.DecodeError):
        return _MetaCluster()
    finally:
        connection.close()
