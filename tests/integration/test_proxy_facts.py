"""A CRI proxy without a key of the log: its facts reach the log through the agent of its node, each one once.

Agent and proxy are processes, and the server knows the users of an installation.
"""

import asyncio
import os
import signal
import stat
import sys
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from koord_agent.shell.bus.bus_link import BusLink
from koord_criproxy.outbox import AgentFacts
from koord_criproxy.sockets import open_channel
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.bus.client.connection import BusConnection, ConnectionSettings
from koordcore.bus.client.opening import connect
from koordcore.bus.factory import Bus, bus_on
from koordcore.bus.names import BusNames
from koordcore.bus.setup.bootstrap import bootstrap
from koordcore.bus.setup.manifest import BOOTSTRAP, EMBEDDED, MANAGER, OPERATOR, agent
from koordcore.bus.setup.principals import nats_users, seed_file, shares
from koordcore.bus.setup.streams import streams
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig
from koordcore.events import CATALOGUE
from koordcore.events.criproxy import HookServerFailed, ProxyFactsDropped
from koordcore.events.envelope import AggregateRef, NewEvent
from koordcore.ports.eventlog import Appended, Conflict, Unavailable, Unsendable
from koordcore.runtime_api.proxy_facts import LARGEST_FACT
from support.bus.bus_worlds import SMALL, sealed
from support.bus.guarded import relaying
from support.criproxy import World, agent_for_facts, link_to
from support.servers import server_directory
from support.until import until

NODE = "node-a"
REF = AggregateRef("criproxy", NODE)
NAMES = BusNames("proxyfacts")


def dropped(number: int, expected: int, **headers: str) -> NewEvent:
    event = sealed("criproxy", NODE, ProxyFactsDropped(facts=number), expected, f"cause-{number}")
    event.headers.update({"Koord-Actor": f"criproxy/{NODE}", **headers})
    return event


async def test_the_socket_gives_access_to_the_facts_of_one_proxy(tmp_path: Path) -> None:
    socket, log = tmp_path / "run" / "facts.sock", MemoryLog()
    async with agent_for_facts(socket, NODE, link_to(log)):
        facts = AgentFacts(socket)
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        assert await facts.last_of(REF) is None
        first = dropped(1, 0)
        assert await facts.append([first]) == Appended(1, (1,))
        assert await facts.append([first]) == Appended(1, (1,), duplicate=True)
        assert await facts.append([dropped(2, 0)]) == Conflict(((REF, 1),))
        newest = await facts.last_of(REF)
        assert newest is not None
        assert (newest.seq, newest.event_id) == (1, first.event_id)
        assert await facts.last_of(AggregateRef("criproxy", "another")) is None

        with pytest.raises(Unsendable, match="one fact at a time"):
            await facts.append([dropped(2, 1), dropped(3, 1)])
        with pytest.raises(Unsendable, match="Koord-Actor: must be criproxy/node-a, got 'x'"):
            await facts.append([dropped(2, 1, **{"Koord-Actor": "x"})])
        with pytest.raises(Unsendable, match="line break"):
            await facts.append([dropped(2, 1, **{"Koord-Based-On": "1\r\nNats-Rollup: all"})])
        with pytest.raises(Unsendable, match="larger than max"):
            await facts.append([dropped(2, 1, **{"Koord-Correlation-Id": "x" * LARGEST_FACT})])
        await facts.close()
    assert log.last_seq == 1


async def test_without_the_agent_or_its_log_facts_wait(tmp_path: Path) -> None:
    socket = tmp_path / "facts.sock"
    facts = AgentFacts(socket)
    outcome = await facts.append([dropped(1, 0)])
    assert isinstance(outcome, Unavailable)
    assert str(socket) in outcome.reason
    await facts.close()
    async with agent_for_facts(socket, NODE, BusLink()):
        facts = AgentFacts(socket)
        outcome = await facts.append([dropped(1, 0)])
        assert isinstance(outcome, Unavailable)
        assert "no connection to the log: not connected yet" in outcome.reason
        await facts.close()


class Node:
    """A node whose agent and whose proxy are processes."""

    def __init__(self, folder: Path, server: NatsServer, keys: Path) -> None:
        self.world = World(folder)
        self._folder = folder
        self._url = server.url
        self._keys = keys
        self._running: list[asyncio.subprocess.Process] = []

    async def start_agent(self) -> "asyncio.subprocess.Process":
        """Start the agent with the user of its node."""
        user, folder = f"agent-{NODE}", self._folder
        return await self._start(
            "koord_agent",
            host_mode="linux",
            node=NODE,
            nats_urls=self._url,
            nats_user=user,
            nats_seed_file=seed_file(self._keys, user),
            cluster=NAMES.cluster,
            state_dir=folder / "agent",
            runtime_hooks_addr=folder / "none" / "koordlet.sock",
            enable_nri_runtime_hook="false",
            criproxy_facts_socket=folder / "facts.sock",
        )

    async def start_proxy(self) -> "asyncio.subprocess.Process":
        """Start the proxy as the installer's unit does: it knows the socket of the agent only."""
        settings = self.world.settings
        return await self._start(
            "koord_criproxy",
            node=NODE,
            koord_runtimeproxy_endpoint=settings.koord_runtimeproxy_endpoint,
            remote_runtime_service_endpoint=settings.remote_runtime_service_endpoint,
            hookserver_dir=settings.hook_server_dir,
            state_dir=self._folder / "proxy",
            facts_socket=self._folder / "facts.sock",
        )

    async def _start(self, module: str, **flags: object) -> "asyncio.subprocess.Process":
        words = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
        with (self._folder / f"{module}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, *words, "--http-port=0", stdout=log, stderr=log
            )
        self._running.append(process)
        return process

    async def kill(self, processes: Iterable["asyncio.subprocess.Process"] = ()) -> None:
        """Kill processes; without an argument all of them."""
        for process in processes or self._running:
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
                await process.wait()

    async def fail(self, uid: str) -> None:
        """Run a pod whose hook server does not answer."""
        await self.world.run_sandbox(metadata={"name": uid, "uid": uid, "namespace": "shop"})


@asynccontextmanager
async def connected(server: NatsServer, keys: Path, user: str) -> AsyncGenerator[BusConnection]:
    settings = ConnectionSettings(urls=(server.url,), user=user, nkey_seed_file=seed_file(keys, user))
    connection = await connect(settings)
    try:
        yield connection
    finally:
        await connection.drain_and_close()


@pytest.mark.nats
@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="the agent of a machine needs root")
@pytest.mark.deep
async def test_no_fact_is_lost_or_doubled_while_agent_and_proxy_are_killed(tmp_path: Path) -> None:
    with server_directory() as directory:
        keys = directory / "keys"
        users = nats_users(NAMES, keys, (*EMBEDDED, agent(NODE, name=f"agent-{NODE}", for_proxy=True)))
        config = NatsServerConfig(directory=directory / "nats", sync_interval="1s", users=users, shares=shares(NAMES))
        async with NatsServer(config) as server:
            async with connected(server, keys, BOOTSTRAP.name) as connection:
                await bootstrap(connection, streams(NAMES, replicas=1, sizes=SMALL))
            node = Node(tmp_path, server, keys)
            await node.world.runtime.start()
            node.world.register("Ignore", "PreRunPodSandbox", endpoint=str(tmp_path / "nobody.sock"))
            try:
                async with (
                    connected(server, keys, MANAGER.name) as manager,
                    relaying(manager, NAMES),
                    connected(server, keys, OPERATOR.name) as connection,
                ):
                    await run_while_both_are_killed(node, bus_on(connection, NAMES))
            finally:
                await node.kill()
                await node.world.channel.close()
                await node.world.runtime.stop()


async def run_while_both_are_killed(node: Node, bus: Bus) -> None:
    async def told() -> list[str]:
        events = [CATALOGUE.read(stored) for stored in await bus.events.read_aggregate(REF)]
        return [event.uid for event in events if isinstance(event, HookServerFailed)]

    async def are_told(count: int) -> bool:
        return len(await told()) >= count

    proxy = await node.start_proxy()
    wanted = [f"pod-{number}" for number in range(60)]
    for uid in wanted[:10]:
        await node.fail(uid)
    running = await node.start_agent()
    await until(lambda: are_told(10), "facts of the time before the agent")
    for uid in wanted[10:30]:
        await node.fail(uid)
        if uid == wanted[20]:
            await node.kill([running])
    running = await node.start_agent()
    await until(lambda: are_told(21), "facts after a new start of the agent")
    await node.kill([proxy])
    await node.world.channel.close()
    node.world.channel = open_channel(str(node.world.settings.koord_runtimeproxy_endpoint))
    await node.start_proxy()
    for uid in wanted[30:]:
        await node.fail(uid)
    await until(lambda: are_told(len(wanted)), "all facts")
    assert await told() == wanted
