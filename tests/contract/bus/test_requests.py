"""Requests and their answers on a real server: errors, repeats, deadlines, idempotency."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from koordcore.bus.client.connection import NoAnswer
from koordcore.bus.work.endpoints import EndpointServer, Refusal
from koordcore.bus.work.requests import RequestFailed, ask
from koordcore.requests.endpoint import Endpoint, ErrorCode
from support.bus.bus_worlds import Place, opened
from support.until import DEADLINE_SECONDS, until

pytestmark = pytest.mark.nats


class Double(msgspec.Struct, frozen=True):
    """Asks for twice a number."""

    number: int


class Doubled(msgspec.Struct, frozen=True):
    """Twice a number."""

    number: int


class Other(msgspec.Struct, frozen=True):
    """A body that the endpoint cannot read."""

    text: str


DOUBLE = Endpoint(service="calculator", verb="double", request=Double, answer=Doubled, summary="Twice a number.")
MISREAD = Endpoint(
    service="calculator", verb="double", request=Other, answer=Doubled, summary="The same, wrongly asked."
)


SPELL = Endpoint(service="calculator", verb="spell", request=Double, answer=Other, summary="A number in words.")
STANDING_BY = Endpoint(
    service="calculator", verb="double", request=Double, answer=Doubled, summary="The same.", prefers_standby=True
)


@pytest.fixture
async def place(nats_url: str) -> AsyncGenerator[Place]:
    async with opened(nats_url) as found:
        yield found


@asynccontextmanager
async def serving(
    place: Place, handler: Callable[[Double], Awaitable[Doubled]], *, as_standby: bool = False
) -> AsyncGenerator[None]:
    server = EndpointServer(place.connection, place.bus.names, graceful_seconds=0.1)
    server.serve(STANDING_BY if as_standby else DOUBLE, handler, as_standby=as_standby)
    running = asyncio.create_task(server.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait((running,))


async def double(place: Place, number: int, *, seconds: float = DEADLINE_SECONDS, request_id: str = "") -> int:
    answer = await ask(
        place.connection, place.bus.names, DOUBLE, Double(number), seconds=seconds, request_id=request_id
    )
    return answer.number


async def twice(request: Double) -> Doubled:
    return Doubled(2 * request.number)


async def test_requests_are_answered_and_the_connection_stays_open(place: Place):
    async with serving(place, twice):
        assert [await double(place, number) for number in range(20)] == [2 * number for number in range(20)]
    assert place.connection.is_connected


async def test_a_request_waits_for_a_service_that_starts(place: Place):
    asking = asyncio.create_task(double(place, 4))
    with pytest.raises(NoAnswer):
        await ask(
            place.connection, place.bus.names, DOUBLE, Double(1), seconds=DEADLINE_SECONDS, waits_for_service=False
        )
    async with serving(place, twice):
        assert await asking == 8


async def test_a_request_that_cannot_be_read_is_refused(place: Place):
    async with serving(place, twice):
        with pytest.raises(RequestFailed, match="the request cannot be read") as found:
            await ask(place.connection, place.bus.names, MISREAD, Other("x"), seconds=DEADLINE_SECONDS)
    assert found.value.code == ErrorCode.INVALID


async def test_a_request_is_repeated_while_the_service_cannot_answer(place: Place):
    tries: list[int] = []

    async def recovering(request: Double) -> Doubled:
        tries.append(request.number)
        if len(tries) < 3:
            raise Refusal(ErrorCode.UNAVAILABLE, "the table is locked")
        return await twice(request)

    async with serving(place, recovering):
        assert await double(place, 5) == 10
    assert tries == [5, 5, 5]


async def test_the_last_refusal_is_told_after_the_deadline(place: Place):
    async def locked(_: Double) -> Doubled:
        raise Refusal(ErrorCode.UNAVAILABLE, "the table is locked")

    async def is_told() -> bool:
        try:
            answer = await double(place, 5, seconds=0.3)
        except RequestFailed as error:
            return "the table is locked" in str(error)
        except NoAnswer:
            return False  # no refusal came before the deadline
        raise AssertionError(f"answered with {answer}")

    async with serving(place, locked):
        await until(is_told)


async def test_an_error_of_the_handler_is_an_error_reply(place: Place):
    async def broken(_: Double) -> Doubled:
        raise KeyError("bug")

    async with serving(place, broken):
        with pytest.raises(RequestFailed, match="double failed; the log of calculator has the details") as found:
            await double(place, 1)
    assert found.value.code == ErrorCode.INTERNAL


async def test_a_handler_is_stopped_at_the_deadline_of_its_caller(place: Place):
    stopped = asyncio.Event()

    async def endless(_: Double) -> Doubled:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        raise AssertionError

    async def is_stopped() -> bool:
        with pytest.raises((RequestFailed, NoAnswer)):
            await double(place, 1, seconds=0.2)
        return stopped.is_set()

    async with serving(place, endless):
        await until(is_stopped)


async def test_requests_with_one_id_are_carried_out_once(place: Place):
    carried_out: list[int] = []
    go_on = asyncio.Event()

    async def slow(request: Double) -> Doubled:
        carried_out.append(request.number)
        await go_on.wait()
        return await twice(request)

    async with serving(place, slow):
        both = [asyncio.create_task(double(place, 3, request_id="r1")) for _ in range(2)]
        await until(lambda: carried_out, "the first request is being carried out")
        go_on.set()
        assert await asyncio.gather(*both) == [6, 6]
        assert await double(place, 3, request_id="r1") == 6
        assert await double(place, 3, request_id="r2") == 6
    assert carried_out == [3, 3]


async def test_a_standby_is_preferred_and_the_leader_answers_without_one(place: Place):
    async def tripled(request: Double) -> Doubled:
        return Doubled(3 * request.number)

    async def gives(number: int) -> bool:
        answer = await ask(place.connection, place.bus.names, STANDING_BY, Double(1), seconds=DEADLINE_SECONDS)
        return answer.number == number

    async def refusing(_: Double) -> Doubled:
        raise Refusal(ErrorCode.UNAVAILABLE, "the log is not folded yet")

    async with serving(place, twice):
        assert await gives(2)
        async with serving(place, tripled, as_standby=True):
            await until(lambda: gives(3))  # its subscription takes a moment
        async with serving(place, refusing, as_standby=True):
            assert await gives(2)


async def test_an_answer_that_is_too_large_for_a_message_is_refused(place: Place):
    async def long(_: Double) -> Other:
        return Other("x" * place.connection.max_payload)

    server = EndpointServer(place.connection, place.bus.names, graceful_seconds=0.1)
    server.serve(SPELL, long)
    running = asyncio.create_task(server.run())
    with pytest.raises(RequestFailed, match="ask for less") as found:
        await ask(place.connection, place.bus.names, SPELL, Double(1), seconds=DEADLINE_SECONDS)
    assert found.value.code == ErrorCode.INVALID
    running.cancel()
    await asyncio.wait((running,))
