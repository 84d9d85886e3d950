# pyright: reportUnknownMemberType=false
# nats-py types its **options as unknown.
"""A real nats-server: ready, killed, recovered, refused."""

import asyncio
import datetime
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from koordcore.bus.setup.tls_files import ensure_tls_files
from koordcore.embedded.errors import NotRestartableError, PortInUseError, StartError
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig, NatsTls, NatsUser, UserPermissions, ensure_user_key
from koordcore.embedded.ports import free_ports
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.api import StreamConfig
from nats.js.errors import NoStreamResponseError, ServiceUnavailableError
from support.bus.nats_cluster import NatsCluster
from support.bus.plain_client import connected_to
from support.until import DEADLINE_SECONDS, until

T = TypeVar("T")

pytestmark = pytest.mark.nats
NOW = datetime.datetime.now(datetime.UTC)


async def test_server_is_ready_for_streams_when_start_returns(nats_server: NatsServer) -> None:
    connection = await connected_to(nats_server.url)
    try:
        await connection.jetstream(timeout=DEADLINE_SECONDS).add_stream(
            StreamConfig(name="READY", subjects=["ready.>"])
        )
        ack = await connection.jetstream(timeout=DEADLINE_SECONDS).publish("ready.now", b"1")
        assert ack.seq == 1
    finally:
        await connection.close()


async def test_acknowledged_messages_survive_kill_9_on_the_same_port(fresh_nats_server: NatsServer) -> None:
    server = fresh_nats_server
    connection = await connected_to(server.url)
    await connection.jetstream(timeout=DEADLINE_SECONDS).add_stream(StreamConfig(name="FACTS", subjects=["facts.>"]))
    for number in range(20):
        await connection.jetstream(timeout=DEADLINE_SECONDS).publish("facts.a", str(number).encode())
    await connection.close()
    url = server.url
    await server.kill()
    assert not server.is_running

    await server.start()

    assert server.url == url
    connection = await connected_to(server.url)
    try:
        info = await connection.jetstream(timeout=DEADLINE_SECONDS).stream_info("FACTS")
        assert (info.state.first_seq, info.state.last_seq, info.state.messages) == (1, 20, 20)
        last = await connection.jetstream(timeout=DEADLINE_SECONDS).get_last_msg("FACTS", "facts.a")
        assert last.data == b"19"
    finally:
        await connection.close()


async def test_stop_and_start_twice_are_harmless(fresh_nats_server: NatsServer) -> None:
    pid = fresh_nats_server.pid
    await fresh_nats_server.start()
    assert fresh_nats_server.pid == pid
    await fresh_nats_server.restart()
    assert fresh_nats_server.pid not in {None, pid}
    await fresh_nats_server.stop()
    await fresh_nats_server.stop()
    assert await fresh_nats_server.wait_exit(0) is not None


@pytest.mark.parametrize("which", ["port", "monitor_port"])
async def test_configured_port_in_use_is_named(tmp_path: Path, which: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken: int = other.getsockname()[1]
        config = (
            NatsServerConfig(directory=tmp_path, port=taken)
            if which == "port"
            else NatsServerConfig(directory=tmp_path, monitor_port=taken)
        )
        with pytest.raises(PortInUseError, match=f"port {taken} on 127.0.0.1 is already in use") as raised:
            await NatsServer(config).start()
        assert raised.value.port == taken


async def test_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    server = NatsServer(NatsServerConfig(directory=tmp_path, sync_interval="sometimes"))
    with pytest.raises(StartError, match="sync_interval") as raised:
        await server.start()
    assert "exit code 1" in raised.value.reason
    assert not server.is_running


def test_a_damaged_key_is_named(tmp_path: Path) -> None:
    seed = ensure_user_key(tmp_path / "agent.seed").seed_file
    whole = seed.read_bytes()
    for damaged in (b"", whole[:-1], whole[:20] + bytes([whole[20] ^ 1]) + whole[21:], b"\xff" * len(whole)):
        seed.write_bytes(damaged)
        with pytest.raises(NotRestartableError, match=r"agent.seed: must be the seed of an NKEY: .*; put a copy"):
            ensure_user_key(seed)


async def test_user_may_do_what_its_permissions_say_and_nothing_else(tmp_path: Path) -> None:
    key = ensure_user_key(tmp_path / "agent.seed")
    assert key == ensure_user_key(tmp_path / "agent.seed")
    assert key.seed_file.stat().st_mode & 0o777 == 0o600
    agent = NatsUser(
        name="agent",
        public_key=key.public_key,
        permissions=UserPermissions(publish_allow=("obs.node.n1",), subscribe_allow=("push.node.n1",)),
    )
    async with NatsServer(NatsServerConfig(directory=tmp_path / "nats", users=(agent,))) as server:
        with pytest.raises(NatsError, match="Authorization Violation"):
            await connected_to(server.url, allow_reconnect=False)
        errors: asyncio.Queue[str] = asyncio.Queue()

        async def note(error: Exception) -> None:
            errors.put_nowait(str(error))

        connection = await connected_to(server.url, nkeys_seed=str(key.seed_file), error_cb=note)
        try:
            await connection.publish("obs.node.n1", b"")
            await connection.publish("obs.node.n2", b"")
            # The server answers in order: the first complaint is about the second publish.
            first = await asyncio.wait_for(errors.get(), DEADLINE_SECONDS)
            assert 'permissions violation for publish to "obs.node.n2"' in first.lower()
        finally:
            await connection.close()


async def test_tls_server_is_trusted_by_its_own_authority_only(tmp_path: Path) -> None:
    files = ensure_tls_files(tmp_path / "tls", now=NOW)
    before = files.server_certificate.read_bytes()
    assert ensure_tls_files(tmp_path / "tls", now=NOW).server_certificate.read_bytes() == before
    tls = NatsTls(certificate=files.server_certificate, key=files.server_key, ca=files.ca, verify_clients=True)
    async with NatsServer(NatsServerConfig(directory=tmp_path / "nats", tls=tls)) as server:
        trusting = ssl.create_default_context(cafile=str(files.ca))
        trusting.load_cert_chain(files.client_certificate, files.client_key)
        connection = await connected_to(server.url, tls=trusting)
        await connection.flush(int(DEADLINE_SECONDS))
        await connection.close()
        with pytest.raises(ssl.SSLCertVerificationError):
            await connected_to(server.url, tls=ssl.create_default_context(), allow_reconnect=False)


def test_certificates_about_to_end_are_made_anew_by_the_same_authority_while_it_lives(tmp_path: Path) -> None:
    def contents(at: datetime.datetime) -> tuple[bytes, bytes]:
        files = ensure_tls_files(tmp_path, now=at)
        return files.ca.read_bytes(), files.server_certificate.read_bytes()

    authority, certificate = contents(NOW)
    assert contents(NOW + datetime.timedelta(days=300)) == (authority, certificate)
    same_authority, renewed = contents(NOW + datetime.timedelta(days=340))
    assert same_authority == authority
    assert renewed != certificate
    other_authority, _ = contents(NOW + datetime.timedelta(days=3400))
    assert other_authority != authority


def test_a_certificate_covers_every_host_that_clients_use(tmp_path: Path) -> None:
    before = ensure_tls_files(tmp_path, now=NOW, hosts=("nats", "nats-0.nats")).server_certificate.read_bytes()
    assert ensure_tls_files(tmp_path, now=NOW, hosts=("nats",)).server_certificate.read_bytes() == before
    assert ensure_tls_files(tmp_path, now=NOW, hosts=("nats", "10.0.0.7")).server_certificate.read_bytes() != before


async def answered(ask: Callable[[], Awaitable[T]]) -> T:
    """Return the answer; ask again while the stream has no leader yet or has just lost it."""

    async def answer() -> tuple[T] | None:
        try:
            return (await ask(),)
        except (NoStreamResponseError, ServiceUnavailableError, NatsTimeoutError):
            return None

    return (await until(answer, every=0.1))[0]


@pytest.mark.deep
async def test_three_nodes_lose_their_leader_without_losing_facts(nats_cluster: NatsCluster) -> None:
    connection = await connected_to(*nats_cluster.urls)
    try:
        stream = connection.jetstream()
        await answered(lambda: stream.add_stream(StreamConfig(name="R3", subjects=["r3.>"], num_replicas=3)))
        await answered(lambda: stream.publish("r3.a", b"before"))
        leader = await until(nats_cluster.meta_leader)
        await leader.kill()
        await nats_cluster.wait_ready()
        assert await until(nats_cluster.meta_leader) is not leader
        await nats_cluster.start()
        assert leader.is_running
        message = await answered(lambda: stream.get_last_msg("R3", "r3.a"))
        assert message.data == b"before"
    finally:
        await connection.close()


async def test_cluster_that_cannot_form_says_so_and_leaves_nothing_running(tmp_path: Path) -> None:
    cluster = NatsCluster(tmp_path, size=2)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken: int = other.getsockname()[1]
        cluster.servers[1].config = NatsServerConfig(
            name="koord-1", directory=tmp_path, port=taken, monitor_port=free_ports(1)[0]
        )
        with pytest.raises(PortInUseError, match=str(taken)):
            await cluster.start()
    assert not any(server.is_running for server in cluster.servers)
