"""Facts of nodes reach the log through the manager, and a node that floods it slows itself and nobody else."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from koord_manager.compose import assemble
from koord_manager.settings import ManagerSettings
from koordcore.bus.client.connection import BusConnection
from koordcore.bus.client.wire import encode_headers, hpub
from koordcore.bus.names import BusNames
from koordcore.bus.read.stream_reader import stream_info
from koordcore.bus.setup.manifest import BOOTSTRAP, MANAGER, OPERATOR, SCHEDULER, agent
from koordcore.bus.setup.streams import LARGEST_NODE_FACT, MIB, StreamSizes
from koordcore.bus.write.own_facts import OwnFactLog
from koordcore.events.envelope import HEADER_EXPECTED_LAST, HEADER_ID, AggregateRef, NewEvent, event_id
from koordcore.events.nodestate import PodsStarted
from koordcore.events.observation import NodeUsageReported, Usage
from koordcore.events.pod import PodReleased
from koordcore.ports.eventlog import Appended, Conflict, TooLarge, Unavailable
from koordcore.service.leader.lease import SoleLeader
from koordcore.service.run import Shell
from support.bus.bus_worlds import origin, sealed
from support.bus.guarded import Guarded
from support.bus.installed_server import koord
from support.running_service import running_service
from support.servers import server_directory
from support.until import DEADLINE_SECONDS, until

pytestmark = pytest.mark.nats

NAMES = BusNames("quota")
SIZES = StreamSizes(
    ev=64 * MIB,
    obs=32 * MIB,
    cmd=MIB,
    explanations=8 * MIB,
    audit=MIB,
    dlq=MIB,
    adv=MIB,
    desired=8 * MIB,
    leader=MIB,
    snapshots=16 * MIB,
    saved=16 * MIB,
)


def started(node: str, number: int, expected: int) -> NewEvent:
    return sealed("nodestate", node, PodsStarted(pods=[f"p{number}"]), expected, f"{node}/{number}")


@pytest.fixture
async def server() -> AsyncIterator[Guarded]:
    with server_directory() as directory:
        agents = [agent(node, name=f"agent-{node}", for_proxy=True) for node in ("n1", "n2")]
        everywhere = agent("*", name="everywhere", for_proxy=True)
        found = Guarded(directory, NAMES, (BOOTSTRAP, MANAGER, SCHEDULER, OPERATOR, *agents, everywhere))
        await found.start(SIZES)
        try:
            yield found
        finally:
            await found.server.kill()


@asynccontextmanager
async def manager(server: Guarded, *words: str) -> AsyncGenerator[None]:
    async with server.bus("manager") as bus:

        async def compose(shell: Shell[ManagerSettings]) -> None:
            assemble(shell, bus, SoleLeader("test"))

        settings = ManagerSettings.load(["--log-level=error", f"--cluster={NAMES.cluster}", *words], {})
        async with running_service(settings, compose):
            yield


async def last_seq(server: Guarded) -> int:
    async with server.bus("manager") as bus:
        return (await bus.events.head()).last_seq


async def test_an_agent_appends_through_the_manager_as_to_the_log_itself(server: Guarded) -> None:
    async with server.connected("agent-n1") as connection:
        log = OwnFactLog(connection, NAMES)
        away = await log.append([started("n1", 0, 0)], deadline=0.5)
        assert isinstance(away, Unavailable), "without a manager, facts wait on the node"

        async with manager(server):
            first = await log.append([started("n1", 0, 0)], deadline=DEADLINE_SECONDS)
            assert first == Appended(1, (1,))
            assert await log.append([started("n1", 1, 1)], deadline=DEADLINE_SECONDS) == Appended(2, (2,))
            again = await log.append([started("n1", 1, 1)], deadline=DEADLINE_SECONDS)
            assert again == Appended(2, (2,), duplicate=True)
            conflict = await log.append([started("n1", 2, 1)], deadline=DEADLINE_SECONDS)
            assert conflict == Conflict(((AggregateRef("nodestate", "n1"), 2),))
            several = [started("n1", 2, 2), sealed("criproxy", "n1", PodsStarted(pods=["x"]))]
            assert isinstance(await log.append(several, deadline=DEADLINE_SECONDS), Conflict), "facts come one by one"
            last = await log.last_of(AggregateRef("nodestate", "n1"))
            assert last is not None
            assert (last.seq, last.event_id) == (2, started("n1", 1, 1).event_id)


async def test_a_node_cannot_use_the_id_of_another_writers_next_fact(server: Guarded) -> None:
    """The server drops a message with an id that another one had, whoever wrote it. Ids can be computed ahead."""
    release = sealed("pod", "p1", PodReleased(namespace="d", name="p", node="n1", reason="deleted"), cause="p/1")
    poison = started("n1", 0, 0)
    poison.headers[HEADER_ID] = release.event_id
    async with server.connected("agent-n1") as connection, manager(server), server.bus("scheduler") as scheduler:
        log = OwnFactLog(connection, NAMES)
        assert await log.append([poison], deadline=DEADLINE_SECONDS) == Appended(1, (1,))
        assert await log.append([poison], deadline=DEADLINE_SECONDS) == Appended(1, (1,), duplicate=True)
        assert await scheduler.events.append([release]) == Appended(2, (2,))
        (read,) = await scheduler.events.read_aggregate(poison.ref)
        assert read.event_id == release.event_id


async def test_an_id_that_a_service_has_used_keeps_no_other_fact_out(server: Guarded) -> None:
    release = sealed("pod", "p1", PodReleased(namespace="d", name="p", node="n1", reason="deleted"), cause="p/1")
    async with server.connected(OPERATOR.name) as operator, server.bus("scheduler") as scheduler:
        skip = encode_headers({HEADER_ID: release.event_id, HEADER_EXPECTED_LAST: "0", "Koord-Type": "x"})
        await operator.request(f"{NAMES.prefix('ev')}fold.x", b"{}", header=skip)
        assert await scheduler.events.append([release]) == Appended(2, (2,))
        assert isinstance(await scheduler.events.append([release]), Conflict), "it is there already, with another id"


async def test_a_node_cannot_use_the_id_of_a_report_that_the_manager_writes(server: Guarded) -> None:
    """The manager writes the reports of Koordinator's node agent. Their ids can be computed from node and second."""
    ref, cause = AggregateRef("node", "n2"), "nodemetric/n2/2026-01-01T00:00:00Z"
    report = NodeUsageReported(
        updated_at="2026-01-01T00:00:00Z",
        report_interval_seconds=60,
        aggregate_duration_seconds=300,
        node_usage=Usage(1, 1),
    )
    taken = encode_headers({HEADER_ID: event_id(cause, ref, 0)})
    async with server.connected("agent-n1") as attacker, server.bus("manager") as bus:
        await attacker.request(f"{NAMES.prefix('obs')}node.n1", b"{}", header=taken)
        await bus.observations.publish(ref, report, origin(cause))
        await until(lambda: bus.observations.latest([ref]))
        (read,) = await bus.observations.latest([ref])
        assert read.event_id == event_id(cause, ref, 0)


async def test_what_a_relay_cannot_pass_on_harms_no_other_node(
    server: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    """Headers that grow when they are decoded, large messages, names that are no text, and actors of others."""
    subject = f"{NAMES.prefix('ev')}nodestate.n1"
    expected = f"{HEADER_EXPECTED_LAST}: 0\r\n".encode()
    async with (
        server.connected("agent-n1") as attacker,
        server.connected("agent-n2") as connection,
        server.connected("everywhere") as shared,
        manager(server),
    ):
        log = OwnFactLog(connection, NAMES)
        assert await log.append([started("n2", 0, 0)], deadline=DEADLINE_SECONDS) == Appended(1, (1,))
        for size, reason in ((100_000, "headers must be ASCII"), (350_000, "a fact of 350,")):
            lines = expected + b"X: " + b"\xff" * size + b"\r\n"  # each byte becomes three when it is replaced
            answer = json.loads((await attacker.request(subject, b"", header=lines)).data)
            assert answer["error"]["description"].startswith(reason)
        forged = expected + b"Koord-Actor: manager/manager\r\n"
        refused = json.loads((await attacker.request(subject, b"{}", header=forged)).data)["error"]["description"]
        assert refused == "the header Koord-Actor must begin with agent/, got 'manager/manager'"
        for name in (b"x\xffy", b"x\x0by", b"x\x0c", b"\x80"):
            strange = f"{NAMES.prefix('ev')}criproxy.".encode() + name
            shared.write(b"HPUB %b _INBOX_everywhere.x 14 14\r\nNATS/1.0\r\n\r\n\r\n\r\n" % strange)
        await shared.client.flush(int(DEADLINE_SECONDS))
        assert await log.append([started("n2", 1, 1)], deadline=DEADLINE_SECONDS) == Appended(2, (2,))
        assert "bus_message_not_taken" not in caplog.text


async def test_a_larger_fact_than_nodes_need_is_refused_and_left_out(server: Guarded) -> None:
    async with server.connected("agent-n1") as connection, server.relaying():
        large = sealed("nodestate", "n1", PodsStarted(pods=["x" * LARGEST_NODE_FACT]), 0, "large")
        with pytest.raises(TooLarge, match="nodestate"):
            await OwnFactLog(connection, NAMES).append([large], deadline=DEADLINE_SECONDS)

        for size, answer in ((LARGEST_NODE_FACT, "at most 131,072"), (LARGEST_NODE_FACT - 1024, '"seq":1')):
            headers = encode_headers({"Nats-Msg-Id": f"{size}", "Nats-Expected-Last-Subject-Sequence": "0"})
            token, future = connection.expect(())
            subject = f"koord.{NAMES.cluster}.ev.nodestate.n1"
            connection.write(hpub(subject, connection.address(token), headers, b"x" * size))
            assert answer in (await connection.answer(future, DEADLINE_SECONDS)).data.decode()
            connection.forget(token)


async def flood(connection: BusConnection, count: int, size: int) -> None:
    """Write as many facts of node n1 as the connection takes, without waiting for answers."""
    subject = f"koord.{NAMES.cluster}.ev.nodestate.n1"
    for number in range(count):
        headers = encode_headers({"Nats-Msg-Id": f"f{size}-{number}", "Nats-Expected-Last-Subject-Sequence": "0"})
        connection.write(hpub(subject, "", headers, b"x" * size))
        if number % 16 == 0:
            await connection.client.flush(int(DEADLINE_SECONDS))
    await connection.client.flush(int(DEADLINE_SECONDS))


@pytest.mark.parametrize(
    ("large", "small"), [(160, 5_000), pytest.param(800, 100_000, marks=pytest.mark.deep)], ids=["quick", "whole"]
)
async def test_a_node_that_floods_the_log_slows_itself_and_nobody_else(
    server: Guarded, large: int, small: int, tmp_path: Path
) -> None:
    async with (
        manager(server),
        server.connected("agent-n1") as hostile,
        server.connected("agent-n2") as honest,
        server.bus("operator") as operator,
    ):
        log = OwnFactLog(honest, NAMES)
        assert isinstance(await log.append([started("n2", 0, 0)], deadline=DEADLINE_SECONDS), Appended)

        flooding = asyncio.create_task(flood(hostile, large, LARGEST_NODE_FACT - 1024))
        expected = 1
        for number in range(1, 20):
            outcome = await log.append([started("n2", number, expected)], deadline=DEADLINE_SECONDS)
            assert isinstance(outcome, Appended), outcome
            expected = outcome.last_seq
        await flooding
        await flood(hostile, small, 10)

        outcome = await log.append([started("n2", 20, expected)], deadline=DEADLINE_SECONDS)
        assert isinstance(outcome, Appended), outcome
        reports = operator.observations
        async with server.bus("agent-n2") as bus:
            report = NodeUsageReported(
                updated_at="2026-01-01T00:00:00.000000Z", report_interval_seconds=60, aggregate_duration_seconds=300
            )
            await bus.observations.publish(AggregateRef("node", "n2"), report, origin())
            await until(lambda: reports.latest([AggregateRef("node", "n2")]))
        info = await stream_info(operator.connection, NAMES.ev) if operator.connection else None
        assert info is not None
        assert info["state"]["bytes"] < SIZES.ev // 8, "the hostile node has filled no more than its part"

        words = ("doctor", "-o", "json")
        env = {
            "KOORD_NATS": server.server.url,
            "KOORD_NATS_SEED": str(server.settings("operator").nkey_seed_file),
            "KOORD_CLUSTER": NAMES.cluster,
            "KOORD_VAR": str(tmp_path),
        }

        async def named() -> str | None:
            found = json.loads(await asyncio.to_thread(koord, *words, env=env, status=1))
            return next((each["told"] for each in found if each["check"] == "messages of n1"), None)

        told = await until(named)
        assert "node n1 sent" in told
        assert "facts over its quota" in told
