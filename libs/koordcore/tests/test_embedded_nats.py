# pyright: reportUnknownMemberType=false
# nats-py types its **options as unknown.
"""A real nats-server: ready, killed, recovered, refused."""

import nats
import pytest
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_cluster import NatsCluster
from nats.js.api import StreamConfig

pytestmark = pytest.mark.nats


async def test_server_is_ready_for_streams_when_start_returns(nats_server: NatsServer) -> None:
    connection = await nats.connect(nats_server.url)
    try:
        await connection.jetstream().add_stream(StreamConfig(name="READY", subjects=["ready.>"]))
        ack = await connection.jetstream().publish("ready.now", b"1")
        assert ack.seq == 1
    finally:
        await connection.close()


async def test_acknowledged_messages_survive_kill_9_on_the_same_port(fresh_nats_server: NatsServer) -> None:
    server = fresh_nats_server
    connection = await nats.connect(server.url)
    await connection.jetstream().add_stream(StreamConfig(name="FACTS", subjects=["facts.>"]))
    for number in range(20):
        await connection.jetstream().publish("facts.a", str(number).encode())
    await connection.close()
    url = server.url
    await server.kill()
    assert not server.is_running

    await server.start()

    assert server.url == url
    connection = await nats.connect(server.url)
    try:
        info = await connection.jetstream().stream_info("FACTS")
        assert (info.state.first_seq, info.state.last_seq, info.state.messages) == (1, 20, 20)
        last = await connection.jetstream().get_last_msg("FACTS", "facts.a")
        assert last.data == b"19"
    finally:
        await connection.close()


async def test_three_nodes_elect_a_leader_and_lose_one_without_losing_facts(nats_cluster: NatsCluster) -> None:
    connection = await nats.connect(list(nats_cluster.urls))
    try:
        stream = connection.jetstream()
        await stream.add_stream(StreamConfig(name="R3", subjects=["r3.>"], num_replicas=3))
        await stream.publish("r3.a", b"before")
        leader = await nats_cluster.meta_leader()
        assert leader is not None
        await leader.kill()
        await nats_cluster.wait_ready()
        new_leader = await nats_cluster.meta_leader()
        assert new_leader is not None
        assert new_leader is not leader
        await nats_cluster.start()
        assert leader.is_running
        message = await stream.get_last_msg("R3", "r3.a")
        assert message.data == b"before"
    finally:
        await connection.close()
