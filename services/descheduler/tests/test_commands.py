"""Commands on a real server: taken by the leader, carried out once, parked if they never can be."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence

import pytest
from koord_descheduler.compose import assemble, writer_of
from koord_descheduler.cycle import Rounds
from koord_descheduler.domain.config.loading import load
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.settings import DeschedulerSettings
from koordcore.bus.setup.bootstrap import bootstrap_consumers, consumers
from koordcore.bus.work.dlq import DeadLetters
from koordcore.bus.work.endpoints import EndpointServer
from koordcore.bus.work.requests import RequestFailed, ask, submit
from koordcore.embedded.nats import NatsServer
from koordcore.events.objects import NodeSpecAdded
from koordcore.protocol.objects import node_from_json
from koordcore.requests.catalogue import (
    DESCHEDULER_DRAIN,
    DESCHEDULER_DRY_RUN,
    DESCHEDULER_RUN_ROUND,
    MANAGER_CHANGE_OBJECTS,
)
from koordcore.requests.descheduling import DryRunRequest, RunRound, StartDrain
from koordcore.requests.objects import (
    ChangeAnswer,
    ChangeOutcome,
    ChangeRequest,
    ChangeResult,
    CreateObject,
    ObjectChange,
)
from koordcore.service.leader.lease import SoleLeader
from koordcore.service.run import Shell
from support.bus.bus_worlds import Place, opened, sealed
from support.running_service import running_service
from support.until import DEADLINE_SECONDS, until

pytestmark = pytest.mark.nats
ONE_ROUND = b"apiVersion: descheduler/v1alpha2\nkind: DeschedulerConfiguration\ndeschedulingInterval: 1h\n"


@contextlib.asynccontextmanager
async def service(url: str) -> AsyncGenerator[tuple[Place, Rounds]]:
    """A descheduler whose first round has ended, on a log of its own."""
    built: list[Rounds] = []
    async with opened(url) as place:
        await bootstrap_consumers(place.connection, consumers(place.bus.names))

        async def compose(shell: Shell[DeschedulerSettings]) -> None:
            built.append(assemble(shell, place.bus, SoleLeader("t"), load(ONE_ROUND, BUILT_IN), writer_of(place.bus)))

        async with running_service(DeschedulerSettings.load(["--log-level=error"], {}), compose):
            await until(lambda: built[0].begun >= 1)
            yield place, built[0]


async def test_round_is_run_once_for_requests_with_one_key(nats_server: NatsServer) -> None:
    async with service(nats_server.url) as (place, rounds):
        before = rounds.begun
        for key in ("a", "a", "b"):
            await submit(
                place.connection,
                place.bus.names,
                DESCHEDULER_RUN_ROUND,
                RunRound(),
                seconds=DEADLINE_SECONDS,
                request_id=key,
            )
        await until(lambda: rounds.begun == before + 2)


async def test_drain_creates_its_object_and_a_refused_one_is_parked(nats_server: NatsServer) -> None:
    asked: list[ObjectChange] = []

    async def change(request: ChangeRequest) -> ChangeAnswer:
        asked.extend(request.changes)
        results = [_result(request.changes[:1]), *[ChangeResult.DONE] * (len(request.changes) - 1)]
        return ChangeAnswer(outcomes=[ChangeOutcome(result=result, message="no") for result in results])

    async with service(nats_server.url) as (place, _):
        server = EndpointServer(place.connection, place.bus.names)
        server.serve(MANAGER_CHANGE_OBJECTS, change)
        manager = asyncio.create_task(server.run())
        letters = DeadLetters(place.connection, place.bus.names)
        for node in ("n1", "bad"):
            request = StartDrain(node=node, confirm=True)
            await submit(place.connection, place.bus.names, DESCHEDULER_DRAIN, request, seconds=DEADLINE_SECONDS)

        async def is_parked() -> bool:
            return len(await letters.list()) == 1

        await until(is_parked)
        manager.cancel()
        await asyncio.wait({manager})
    created = [change.document for change in asked if isinstance(change, CreateObject)]
    assert [(each["kind"], each["metadata"]["name"]) for each in created] == [
        ("DrainNode", "drain-n1"),
        ("DrainNode", "drain-bad"),
    ]


async def test_dry_run_is_answered_and_a_wrong_configuration_is_refused(nats_server: NatsServer) -> None:
    async with service(nats_server.url) as (place, rounds):
        names = place.bus.names
        with pytest.raises(RequestFailed, match="at least two ready nodes"):
            await ask(place.connection, names, DESCHEDULER_DRY_RUN, DryRunRequest(), seconds=DEADLINE_SECONDS)
        for node in ("a", "b"):
            object_ = node_from_json({"metadata": {"name": node}, "status": {"allocatable": {"cpu": "4"}}})
            await place.bus.events.append([sealed("nodespec", node, NodeSpecAdded(object=object_), cause=node)])
        await rounds.runner.reached((await place.bus.events.head()).last_seq)
        answer = await ask(
            place.connection, names, DESCHEDULER_DRY_RUN, DryRunRequest(rounds=2), seconds=DEADLINE_SECONDS
        )
        assert (answer.rounds, answer.moves) == (2, [])
        with pytest.raises(RequestFailed, match="kind"):
            await ask(
                place.connection, names, DESCHEDULER_DRY_RUN, DryRunRequest(config="kind: X"), seconds=DEADLINE_SECONDS
            )


def _result(changes: Sequence[ObjectChange]) -> ChangeResult:
    refused = isinstance(changes[0], CreateObject) and changes[0].document["metadata"]["name"] == "drain-bad"
    return ChangeResult.REFUSED if refused else ChangeResult.DONE
