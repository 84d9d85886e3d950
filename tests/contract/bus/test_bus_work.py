"""An agent's own facts, workers and the dead letter queue on a real server."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator

import pytest
from koordcore.bus.client.connection import BusConnection, ConnectionSettings
from koordcore.bus.client.opening import connect
from koordcore.bus.setup.bootstrap import Change, ConsumerSpec, StreamDiffers, bootstrap_consumers
from koordcore.bus.work.dlq import DeadLetters, NoSuchItem
from koordcore.bus.work.effect_worker import PermanentFailure, TransientFailure, Worker, WorkItem
from koordcore.bus.write.own_facts import OwnFactLog
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, StoredEvent
from koordcore.events.nodestate import PodsStarted
from koordcore.ports.eventlog import Appended
from koordcore.requests.parked import Parked
from support.bus.bus_worlds import Place, opened, sealed
from support.bus.installed_server import koord
from support.bus.log_worlds import FAST
from support.bus.lossy_proxy import LossyProxy
from support.until import DEADLINE_SECONDS, until

pytestmark = pytest.mark.nats

N1 = AggregateRef("nodestate", "n1")


@pytest.fixture
async def place(nats_url: str) -> AsyncGenerator[Place]:
    async with opened(nats_url) as found:
        yield found


async def facts(place: Place) -> list[StoredEvent]:
    head = await place.bus.events.head()
    return [event async for batch in place.bus.events.history(0, head.last_seq) for event in batch]


def started(number: int) -> PodsStarted:
    return PodsStarted(pods=[f"p{number}"])


# --- an agent's own facts ---


async def test_a_fact_whose_acknowledgement_was_lost_is_stored_once(place: Place):
    proxy = LossyProxy(place.url)
    await proxy.start()
    connection = await connect(ConnectionSettings(urls=(proxy.url,), user="agent", reconnect_wait_seconds=0.05))
    own = OwnFactLog(connection, place.bus.names)
    first = await own.append([sealed("nodestate", "n1", started(0), 0, "a")])
    assert isinstance(first, Appended)
    proxy.swallow = True
    second = asyncio.ensure_future(own.append([sealed("nodestate", "n1", started(1), first.last_seq, "b")]))

    async def second_is_stored() -> bool:
        return (await place.bus.events.head()).last_seq == first.last_seq + 1

    await until(second_is_stored)
    proxy.swallow = False
    async with asyncio.timeout(DEADLINE_SECONDS):
        answer = await second
    assert isinstance(answer, Appended)
    last = await own.last_of(N1)
    assert last is not None
    assert last.seq == answer.last_seq == first.last_seq + 1
    assert [CATALOGUE.read(stored) for stored in await facts(place)] == [started(0), started(1)]
    await connection.drain_and_close()
    await proxy.stop()


# --- workers and the dead letter queue ---


def spec_of(place: Place, **fields: object) -> ConsumerSpec:
    names = place.bus.names
    options: dict[str, object] = {
        "ack_wait_seconds": DEADLINE_SECONDS,  # an acknowledgement that is late is not a failed delivery
        "backoff_seconds": (0.05,),
        "max_deliver": 3,
        **fields,
    }
    return ConsumerSpec(
        stream=names.cmd,
        durable="descheduler-migrate",
        filter_subject=f"koord.{names.cluster}.cmd.descheduler.migrate",
        **options,  # type: ignore[arg-type]
    )


async def ask(place: Place, body: bytes) -> None:
    subject = f"koord.{place.bus.names.cluster}.cmd.descheduler.migrate"
    await place.connection.request(subject, body, timeout=DEADLINE_SECONDS)


class Effects:
    """A handler that fails as told."""

    def __init__(self) -> None:
        self.done: list[bytes] = []
        self.tried: list[tuple[bytes, int]] = []

    async def __call__(self, item: WorkItem) -> None:
        self.tried.append((item.body, item.deliveries))
        if item.body == b"never":
            raise PermanentFailure("no such pod")
        if item.body == b"always later" or (item.body == b"later" and item.deliveries < 3):
            raise TransientFailure("the API is slow")
        if item.body == b"bug" and item.deliveries == 1:
            raise KeyError("bug")
        self.done.append(item.body)


class PatientLetters(DeadLetters):
    """Dead letters that are stored again until the server answers, so that the work is not delivered again."""

    async def park(self, parked: Parked) -> int:
        park = super().park
        return await self._connection.patiently(lambda: park(parked), "park", deadline=DEADLINE_SECONDS)


async def dead_letters_of(connection: BusConnection, place: Place) -> DeadLetters:
    return PatientLetters(connection, place.bus.names, follower=FAST)


async def command(place: Place, *words: str) -> str:
    """Run a `koord` command about the log, and return what it printed."""
    environment = {"KOORD_NATS": place.url, "KOORD_CLUSTER": place.bus.names.cluster}
    return await asyncio.to_thread(koord, *words, env=environment)


async def test_work_is_done_retried_or_parked(place: Place):
    spec = spec_of(place)
    assert await bootstrap_consumers(place.connection, [spec]) == {spec.durable: Change.CREATED}
    assert await bootstrap_consumers(place.connection, [spec]) == {spec.durable: Change.UNCHANGED}
    letters = await dead_letters_of(place.connection, place)
    effects = Effects()
    for body in (b"now", b"later", b"bug", b"never", b"always later"):
        await ask(place, body)
    async with Worker(place.connection, spec, effects, letters, workers=2):

        async def is_all_settled() -> bool:
            return len(effects.done) == 3 and len(await letters.list()) == 2

        await until(is_all_settled)
    assert sorted(effects.done) == [b"bug", b"later", b"now"]
    assert sorted(effects.tried).count((b"always later", 3)) == 1
    parked = {item.parked.body: item.parked for item in await letters.list(spec.durable)}
    assert set(parked) == {b"never", b"always later"}
    assert (parked[b"never"].error, parked[b"never"].deliveries) == ("PermanentFailure: no such pod", 1)
    assert (parked[b"always later"].error, parked[b"always later"].deliveries) == (
        "TransientFailure: the API is slow",
        3,
    )
    assert place.connection.is_connected, "the worker must leave the shared connection open"


@pytest.mark.deep
async def test_parked_work_is_shown_retried_and_dropped(place: Place):
    spec = spec_of(place)
    await bootstrap_consumers(place.connection, [spec])
    letters = await dead_letters_of(place.connection, place)
    effects = Effects()
    await ask(place, b"never")
    async with Worker(place.connection, spec, effects, letters):

        async def is_parked() -> bool:
            return len(await letters.list()) == 1

        await until(is_parked)
        (item,) = await letters.list()
        assert await letters.show(item.number) == item
        assert await letters.depths() == {spec.durable: 1}
        assert "no such pod" in await command(place, "bus", "dlq", "list")
        assert await command(place, "bus", "dlq", "retry", str(item.number)) == f"{spec.durable} retries\n"

        async def is_parked_again() -> bool:
            return [other.number for other in await letters.list()] not in ([], [item.number])

        await until(is_parked_again)
    (again,) = await letters.list()
    assert await command(place, "bus", "dlq", "drop", str(again.number)) == f"item {again.number} dropped\n"
    assert await letters.list() == []
    with pytest.raises(NoSuchItem, match=r"^no parked item \d+$"):
        await letters.show(again.number)
    with pytest.raises(NoSuchItem, match=r"^no parked item \d+$"):
        await letters.drop(again.number)


async def test_a_worker_that_died_in_the_middle_leaves_its_work_to_the_next(place: Place):
    spec = spec_of(place, ack_wait_seconds=0.5, max_deliver=1000)
    await bootstrap_consumers(place.connection, [spec])
    letters = await dead_letters_of(place.connection, place)
    taken = asyncio.Event()

    async def hang(_: WorkItem) -> None:
        taken.set()
        await asyncio.Event().wait()

    dying = await connect(ConnectionSettings(urls=(place.url,), user="dying"))
    worker = Worker(dying, spec, hang, letters, graceful_seconds=0.1)
    await ask(place, b"now")
    await worker.__aenter__()
    async with asyncio.timeout(DEADLINE_SECONDS):
        await taken.wait()
    await dying.client.close()  # as a killed process: no nak
    await worker.__aexit__()
    effects = Effects()
    async with Worker(place.connection, spec, effects, letters):

        async def is_done() -> bool:
            return b"now" in effects.done

        await until(is_done)
    assert {body for body, _ in effects.tried} == {b"now"}
    assert effects.tried[0][1] >= 2


async def test_an_existing_consumer_is_not_changed_silently(place: Place):
    await bootstrap_consumers(place.connection, [spec_of(place)])
    with pytest.raises(StreamDiffers, match="max_deliver"):
        await bootstrap_consumers(place.connection, [spec_of(place, max_deliver=9)])


async def test_a_request_of_the_largest_size_is_parked_without_its_whole_body(place: Place):
    spec = spec_of(place)
    await bootstrap_consumers(place.connection, [spec])
    letters = await dead_letters_of(place.connection, place)
    lost: list[None] = []
    place.connection.on_reconnect(lambda: lost.append(None))
    body = b"x" * (place.connection.max_payload - 1024)
    await ask(place, body)

    async def refuse(item: WorkItem) -> None:
        raise PermanentFailure(f"cannot be read: {item.body!r}")

    async with Worker(place.connection, spec, refuse, letters):

        async def is_parked() -> bool:
            return len(await letters.list()) == 1

        await until(is_parked)
    (item,) = await letters.list()
    assert item.parked.error.startswith("PermanentFailure: cannot be read: b'xxx")
    assert body.startswith(item.parked.body)
    assert (item.parked.full_size, item.parked.full_sha256) == (len(body), hashlib.sha256(body).hexdigest())
    with pytest.raises(ValueError, match=f"of its {len(body)} bytes are stored"):
        await letters.retry(item.number)
    assert not lost, "the server closes the connection of a client whose message is too large"
