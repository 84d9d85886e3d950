"""Requests to the descheduler on the bus: work queues for commands, and an endpoint for dry runs.

Only the leader takes work. A request is acknowledged after its effect, so a request of a killed process is carried out
by the next leader. Each effect may be repeated: a round is only an additional one, and objects have fixed names.

Source:
    event-bus spec, 3.2, 8
"""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec
from koordcore.bus.client.connection import BusConnection
from koordcore.bus.names import BusNames
from koordcore.bus.setup.bootstrap import consumer_of
from koordcore.bus.work.dlq import DeadLetters
from koordcore.bus.work.effect_worker import PermanentFailure, TransientFailure, Worker, WorkItem
from koordcore.bus.work.endpoints import Audit, EndpointServer, Refusal
from koordcore.events.admission import RequestAudited
from koordcore.events.descheduling import DryRunAnswered
from koordcore.ports.clock import Clock
from koordcore.protocol.component_config import InvalidConfiguration
from koordcore.protocol.drains import ConfirmState, MigrationMode
from koordcore.requests import descheduling
from koordcore.requests.catalogue import (
    DESCHEDULER_ABORT_MIGRATION,
    DESCHEDULER_DRAIN,
    DESCHEDULER_DRY_RUN,
    DESCHEDULER_NOTE_DRY_RUN,
    DESCHEDULER_RUN_ROUND,
)
from koordcore.requests.endpoint import SUBJECT, ErrorCode, WorkQueue
from koordcore.requests.objects import ChangeResult, CreateObject, DeleteObject, ObjectChange, PatchObject
from koordcore.service.telemetry.logging import Logger
from koordcore.state.migrations import MigrationState
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.config.document import DeschedulerConfiguration
from koord_descheduler.domain.config.effective import configuration_hash
from koord_descheduler.domain.config.loading import load
from koord_descheduler.domain.config.profiles import proving_profiles
from koord_descheduler.domain.drain.changes import API_VERSION
from koord_descheduler.domain.framework.registry import Registry
from koord_descheduler.domain.jobs.passes import soft_eviction_removal
from koord_descheduler.domain.jobs.viewing import reservation_of_job
from koord_descheduler.domain.rounds.dry_run import dry_run
from koord_descheduler.domain.rounds.player import RoundPlayer, start_of_round
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.shell.folding import views_are_current
from koord_descheduler.shell.leading import Leading
from koord_descheduler.shell.object_writer import NotWritten, ObjectWriter
from koord_descheduler.shell.operation import OperationRecorder
from koord_descheduler.shell.rounds.proving import SchedulerAway, answered, scheduler_on

Q = TypeVar("Q", bound=msgspec.Struct)

_DONE, _FAILED = 200, 500
"""Status of an audit record, as in HTTP."""
MOST_ROUNDS: Final = 1000
_INTERVAL: Final = 10.0
"""Seconds between two rounds of a dry run, if the configuration asks for a single round."""


class Commands:
    """Carries out commands, and answers dry runs, while this instance leads.

    `run_round` runs a round besides those of the interval, and waits for its end.
    """

    def __init__(
        self,
        connection: BusConnection,
        names: BusNames,
        *,
        run_round: Callable[[], Awaitable[None]],
        builder: ViewBuilder,
        writer: ObjectWriter,
        leading: Leading,
        operation: OperationRecorder,
        configuration: DeschedulerConfiguration,
        registry: Registry,
        clock: Clock,
        logger: Logger,
        audit: Audit,
    ) -> None:
        self._connection = connection
        self._names = names
        self._question = scheduler_on(connection, names)
        self._run_extra_round = run_round
        self._builder = builder
        self._writer = writer
        self._leading = leading
        self._operation = operation
        self._configuration = configuration
        self._registry = registry
        self._clock = clock
        self._logger = logger
        self._audit = audit

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            term = await self._leading.term()
            server = EndpointServer(self._connection, self._names, audit=self._audit)
            server.serve(DESCHEDULER_DRY_RUN, self.dry_run)
            async with contextlib.AsyncExitStack() as stack:
                for worker in self._workers():
                    await stack.enter_async_context(worker)
                await server.run_until(self._leading.lost(term))

    def _workers(self) -> list[Worker]:
        letters = DeadLetters(self._connection, self._names)

        def worker(queue: WorkQueue[Q], effect: Callable[[Q], Awaitable[None]]) -> Worker:
            async def handle(item: WorkItem) -> None:
                try:
                    request = codec.decode(item.body, queue.request)
                except codec.DecodeError as error:
                    raise PermanentFailure(f"the request cannot be read: {error}") from error
                self._logger.info("command", command=queue.verb, request=item.id, deliveries=item.deliveries)
                status = _FAILED
                try:
                    await effect(request)
                    status = _DONE
                finally:
                    await self._audit(_record_of(queue, request, item, status))

            return Worker(self._connection, consumer_of(queue, self._names), handle, letters, workers=1)

        return [
            worker(DESCHEDULER_RUN_ROUND, self._run_round),
            worker(DESCHEDULER_DRAIN, self._drain),
            worker(DESCHEDULER_ABORT_MIGRATION, self._abort_migration),
            worker(DESCHEDULER_NOTE_DRY_RUN, self._note_dry_run),
        ]

    async def _run_round(self, _: descheduling.RunRound) -> None:
        await self._run_extra_round()

    async def _note_dry_run(self, note: descheduling.DryRunNote) -> None:
        event = DryRunAnswered(
            asked_by=note.asked_by,
            configuration_hash=note.configuration_hash,
            rounds=note.rounds,
            moves=note.moves,
            without_place=note.without_place,
            without_gain=note.without_gain,
        )
        if not await self._operation.asked(event):
            raise TransientFailure("the log did not store the record of the dry run")

    async def _drain(self, request: descheduling.StartDrain) -> None:
        """Create the DrainNode `drain-<node>`, and confirm it if that is asked for."""
        name = f"drain-{request.node}"
        spec = {"nodeName": request.node, "migrationPolicy": {"mode": str(MigrationMode.MIGRATE_DIRECTLY)}}
        document = {"apiVersion": API_VERSION, "kind": "DrainNode", "metadata": {"name": name}, "spec": spec}
        changes: list[ObjectChange] = [CreateObject(document=document)]
        if request.confirm:
            patch = {"spec": {"confirmState": str(ConfirmState.CONFIRMED)}}
            changes.append(PatchObject(kind="DrainNode", name=name, patch=patch))
        await self._change(changes)

    async def _abort_migration(self, request: descheduling.AbortMigration) -> None:
        """Delete a migration job, then its Reservation and its soft-eviction annotation (descheduler spec, 7.11).

        A Reservation that was not created for the job stays.
        The manager withdraws its pending eviction together with the deletion.
        """
        reservation = reservation_of_job(self._builder.state, request.name)
        changes: list[ObjectChange] = [DeleteObject(kind="PodMigrationJob", name=request.name)]
        if reservation:
            changes.append(DeleteObject(kind="Reservation", name=reservation))
        for facts in self._builder.state.of_kind(MigrationState).values():
            if facts.job == request.name:
                changes += soft_eviction_removal(facts, self._builder)
        await self._change(changes)

    async def _change(self, changes: list[ObjectChange]) -> None:
        try:
            outcomes = await self._writer.change(changes)
        except NotWritten as error:
            raise TransientFailure(str(error)) from error
        refused = [outcome.message for outcome in outcomes if outcome.result is ChangeResult.REFUSED]
        if refused:
            raise PermanentFailure("; ".join(refused))

    async def dry_run(self, request: descheduling.DryRunRequest) -> descheduling.DryRunAnswer:
        """Return the effects that rounds would have, with the scheduler's placements. Only an audit record is written.

        Raises:
            Refusal: The request is invalid, or the scheduler does not answer.
        """
        if not 1 <= request.rounds <= MOST_ROUNDS:
            raise Refusal(ErrorCode.INVALID, f"rounds: must be from 1 to {MOST_ROUNDS}, got {request.rounds}")
        await views_are_current(self._builder)
        position = self._builder.state.position
        try:
            configuration = load(request.config.encode(), self._registry) if request.config else self._configuration
            start = start_of_round(self._builder, self._clock.now().timestamp(), configuration, self._registry)
            player = RoundPlayer(configuration, self._registry, start.shared, start.jobs)
        except (InvalidConfiguration, InvalidInput) as error:
            raise Refusal(ErrorCode.INVALID, str(error)) from error
        interval = configuration.descheduling_interval or _INTERVAL
        proving = proving_profiles(configuration)
        asking = dry_run(player, start.cluster, rounds=request.rounds, interval=interval, proving=proving)
        try:
            found = await answered(asking, self._question)
        except InvalidInput as error:  # such as a cluster of one node
            raise Refusal(ErrorCode.INVALID, error.sentence()) from error
        except SchedulerAway as error:
            raise Refusal(ErrorCode.UNAVAILABLE, f"the scheduler: {error}") from error
        await self._operation.asked(
            DryRunAnswered(
                asked_by=request.asked_by,
                configuration_hash=configuration_hash(configuration),
                rounds=found.rounds,
                moves=len(found.moves),
                without_place=len(found.homeless),
                without_gain=len(found.useless),
            )
        )
        return descheduling.DryRunAnswer(
            rounds=found.rounds,
            moves=[
                descheduling.PlannedMove(
                    pod=move.pod.key,
                    uid=move.pod.uid,
                    source=move.pod.node,
                    target=move.target,
                    plugin=move.plugin,
                    reason=move.reason,
                )
                for move in found.moves
            ],
            without_place=[pod.key for pod in found.homeless],
            without_gain=[pod.key for pod in found.useless],
            faults=[f"plugin {each.plugin} of profile {each.profile}: {each.text}" for each in found.faults],
            position=position,
        )


def _record_of(queue: WorkQueue[Q], request: Q, item: WorkItem, status: int) -> RequestAudited:
    """The audit record of a delivery. A delivery that fails is tried again and has its own record."""
    match request:
        case descheduling.StartDrain():
            objects: tuple[str, ...] = (f"Node {request.node}",)
        case descheduling.AbortMigration():
            objects = (f"PodMigrationJob {request.name}",)
        case _:
            objects = ()
    return RequestAudited(
        subject=f"bus:{item.headers.get(SUBJECT, 'unknown')}",
        method="work",
        route=f"{queue.service}.{queue.verb}",
        objects=objects,
        status=status,
        request=item.id,
    )
