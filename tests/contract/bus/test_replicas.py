"""Each server's copy of the log is read, and a copy whose bytes were changed on the disk is found."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from koordcore.bus.client.connection import BusConnection, ConnectionSettings
from koordcore.bus.client.opening import connect
from koordcore.bus.factory import bus_on
from koordcore.bus.names import BusNames
from koordcore.bus.read.replicas import CopyDigest, difference, read_copies
from koordcore.bus.setup.bootstrap import bootstrap, replicas_of
from koordcore.bus.setup.manifest import AUDITOR, BOOTSTRAP, MANAGER, ServiceManifest
from koordcore.bus.setup.principals import nats_users, seed_file, shares
from koordcore.bus.setup.streams import streams
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig
from koordcore.events.objects import PodSpecDeleted
from koordcore.ports.eventlog import Appended
from support.bus.bus_worlds import SMALL, sealed
from support.bus.installed_server import koord
from support.bus.nats_cluster import NatsCluster
from support.servers import server_directory
from support.until import DEADLINE_SECONDS, until

pytestmark = pytest.mark.nats

NAMES = BusNames("copies")
FACTS = 40
MARKED = "somebody"
SPECS = streams(NAMES, replicas=3)
REPLICATED = [spec.name for spec in SPECS if spec.replicas > 1]
SINGLE = [spec.name for spec in SPECS if spec.replicas == 1]


async def filled(urls: tuple[str, ...], replicas: int) -> BusConnection:
    """Return a connection to servers with streams and some facts."""
    connection = await connect(ConnectionSettings(urls=urls, user="test", reconnect_wait_seconds=0.05))
    await bootstrap(connection, streams(NAMES, replicas=replicas, sizes=SMALL))
    await append(connection)
    return connection


async def append(connection: BusConnection) -> None:
    bus = bus_on(connection, NAMES)
    for number in range(FACTS):
        event = sealed("podspec", f"p{number}", PodSpecDeleted(namespace="d", name=MARKED), cause=str(number))
        assert isinstance(await bus.events.append([event]), Appended)


async def copies_of(connection: BusConnection) -> list[CopyDigest]:
    return await read_copies(connection, NAMES.ev, NAMES.prefix("ev"))


async def current_by_stream(urls: tuple[str, ...]) -> dict[str, str]:
    """Return stream -> what `koord bus streams` says about its replicas."""
    where = {"KOORD_NATS": ",".join(urls), "KOORD_CLUSTER": NAMES.cluster}
    lines = (await asyncio.to_thread(koord, "bus", "streams", env=where)).splitlines()
    assert lines[0].endswith("CURRENT")
    return {line.split()[0]: line[lines[0].index("CURRENT") :].strip() for line in lines[1:]}


def flip(server: NatsServer) -> None:
    """Change one letter of a fact in the files of a server that does not run."""
    folder = Path(server.config.directory)
    for file in sorted(folder.glob(f"**/{NAMES.ev}/msgs/*.blk")):
        content = bytearray(file.read_bytes())
        at = content.rfind(MARKED.encode(), 0, len(content) // 2)
        if at >= 0:
            content[at] ^= 1
            file.write_bytes(content)
            return
    raise AssertionError(f"no fact in {folder}")


@pytest.mark.deep
async def test_every_server_of_a_cluster_has_the_same_copy_until_the_bytes_of_one_change() -> None:
    with server_directory() as directory:
        async with NatsCluster(directory) as cluster:
            connection = await filled(cluster.urls, replicas=3)

            async def are_current() -> bool:
                return await current_by_stream(cluster.urls) == dict.fromkeys([*REPLICATED, *SINGLE], "yes")

            try:
                await until(are_current)
                copies = await copies_of(connection)
                assert [copy.server for copy in copies] == [server.config.name for server in cluster.servers]
                assert [copy.messages for copy in copies] == [FACTS] * 3
                assert difference(copies) == ""

                victim = next(server for server in cluster.servers if server.url != connection.client.connected_url)
                where = {"KOORD_NATS": ",".join(cluster.urls), "KOORD_CLUSTER": NAMES.cluster}
                await asyncio.to_thread(koord, "bus", "bootstrap", env=where)
                assert await replicas_of(connection, NAMES.ev) == len(cluster.servers)
                await victim.stop()
                assert [copy.server for copy in await copies_of(connection) if copy.missing] == [victim.config.name]

                async def damaged_copies() -> list[CopyDigest] | None:
                    found = await copies_of(connection)
                    # A server that is behind has another copy, too.
                    has_all = all(copy.messages >= FACTS - 1 for copy in found)
                    return found if difference(found) and has_all else None

                async def is_seen() -> bool:
                    seen = await current_by_stream(cluster.urls)
                    offline = {seen[stream] for stream in REPLICATED} == {f"{victim.config.name} is offline"}
                    return offline and {seen[stream] for stream in SINGLE} <= {"yes", "500/10118 stream is offline"}

                await until(is_seen)
                flip(victim)
                await victim.start()
                await cluster.wait_ready()
                # A server answers some seconds after its start.
                damaged = await until(damaged_copies)
                followed = await _all_facts(connection)
            finally:
                await connection.drain_and_close()

    assert "differ in the positions 0 to 999" in difference(damaged)
    (wrong,) = [copy for copy in damaged if copy.blocks != copies[0].blocks]
    assert victim.config.name in wrong.server
    assert [len(each) for each in wrong.missing] == [1]
    assert followed == list(range(1, FACTS + 1)), "a reader finds what one server has lost at the others"


async def _all_facts(connection: BusConnection) -> list[int]:
    """Read the log 20 times: any of the three servers may answer."""
    log, found = bus_on(connection, NAMES).events, list[int]()
    async with asyncio.timeout(DEADLINE_SECONDS):
        for _ in range(20):
            found = [event.seq async for batch in log.history(0, FACTS) for event in batch]
            assert len(found) == FACTS
    return found


async def test_the_auditor_reads_the_one_copy_of_a_single_server() -> None:
    with server_directory() as directory:
        keys = directory / "keys"
        users = nats_users(NAMES, keys)
        config = NatsServerConfig(directory=directory / "nats", sync_interval="1s", users=users, shares=shares(NAMES))
        async with NatsServer(config) as server, AsyncExitStack() as stack:

            async def connected(user: ServiceManifest) -> BusConnection:
                seed = seed_file(keys, user.name)
                settings = ConnectionSettings(urls=(server.url,), user=user.name, nkey_seed_file=seed)
                connection = await connect(settings)
                stack.push_async_callback(connection.drain_and_close)
                return connection

            await bootstrap(await connected(BOOTSTRAP), streams(NAMES, replicas=1, sizes=SMALL))
            await append(await connected(MANAGER))
            copies = await copies_of(await connected(AUDITOR))
    assert [copy.messages for copy in copies] == [FACTS]
    assert difference(copies) == ""


def test_a_copy_that_ends_early_differs_in_its_last_positions() -> None:
    whole = CopyDigest(server="a", messages=2500, blocks={0: "x", 1: "y", 2: "z"})
    cut = CopyDigest(server="b", messages=1500, blocks={0: "x", 1: "q"})
    assert difference([whole, whole]) == ""
    assert difference([whole, cut]) == "a and b differ in the positions 1000 to 1999"


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_one_copy_of_three_that_differs_is_named_wherever_it_is(damaged: int) -> None:
    copies = [CopyDigest(server=server, messages=900, blocks={0: "x"}) for server in "abc"]
    copies[damaged] = CopyDigest(server="damaged", messages=900, blocks={0: "q"})
    common = "b" if damaged == 0 else "a"
    assert difference(copies) == (
        f"{common} and damaged differ in the positions 0 to 999; 2 of 3 servers have the copy of {common}"
    )
