"""Let the scheduler prove the moves of a round before they become facts."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from koordcore.bus.client.connection import BusConnection, NoAnswer
from koordcore.bus.names import BusNames
from koordcore.bus.work.requests import RequestFailed, ask
from koordcore.requests.catalogue import SCHEDULER_FIT
from koordcore.requests.fit import FitAnswer, FitRequest
from koordcore.service.telemetry.logging import Logger

from koord_descheduler.domain.framework.eviction import Attempt, Result
from koord_descheduler.domain.rounds.dry_run import MOST_MOVES
from koord_descheduler.domain.rounds.effects import is_to_carry_out
from koord_descheduler.domain.rounds.proving import judge
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.shell.waiting import Problem

R = TypeVar("R")
Ask = Callable[[FitRequest], Awaitable[FitAnswer]]
FIT_SECONDS: Final = 50.0
"""Real seconds after which a question to the scheduler is given up."""


class SchedulerAway(Exception):
    """The scheduler does not answer, or refuses the question."""


def scheduler_on(connection: BusConnection, names: BusNames) -> Ask:
    """The function asks over the bus, and may raise SchedulerAway."""

    async def question(request: FitRequest) -> FitAnswer:
        try:
            return await ask(connection, names, SCHEDULER_FIT, request, seconds=FIT_SECONDS)
        except (NoAnswer, RequestFailed) as error:
            raise SchedulerAway(str(error)) from error

    return question


async def answered(asking: Generator[FitRequest, FitAnswer, R], question: Ask) -> R:
    """Run a computation that asks the scheduler, each part of it in a thread.

    Raises:
        SchedulerAway: The scheduler does not answer.
    """
    answer: FitAnswer | None = None
    while True:
        request, result = await asyncio.to_thread(_step, asking, answer)
        if request is None:
            return result
        answer = await question(request)


def _step(asking: Generator[FitRequest, FitAnswer, Any], answer: FitAnswer | None) -> tuple[FitRequest | None, Any]:
    """The next question, or None and the result."""
    try:
        return (next(asking) if answer is None else asking.send(answer)), None
    except StopIteration as end:
        return None, end.value


class Prover:
    """Asks the scheduler whether chosen pods find another node, and whether the cluster gets better.

    `profiles`: names of those whose moves must be proved. `question`: None if there is no connection to a scheduler.
    """

    def __init__(self, profiles: Collection[str], question: Ask | None, logger: Logger) -> None:
        self._profiles = profiles
        self._question = question
        self._not_proved = Problem("moves_not_proved", logger)

    async def proved(self, cluster: ClusterView, attempts: Sequence[Attempt]) -> list[Attempt]:
        """The result of a refused attempt is the reason of the refusal.

        Attempts of a plan are always proved. They get the node on which the scheduler would place the pod.

        If the scheduler does not answer, no move is proved. The next round asks again.
        """
        chosen = [
            each
            for each in attempts
            if is_to_carry_out(each) and (each.profile in self._profiles or each.plan is not None)
        ]
        if not chosen:
            return list(attempts)
        refused: dict[str, Result] = {}
        targets: dict[str, str] = {}
        try:
            if self._question is None:
                raise SchedulerAway("this log has no connection to a scheduler")
            found = await answered(judge(cluster, chosen[:MOST_MOVES], self._profiles), self._question)
            targets = found.targets
            refused = {each.pod.uid: Result.UNPROVED for each in chosen[MOST_MOVES:]}
            refused |= {pod.uid: Result.NO_PLACE for pod in found.homeless}
            refused |= {pod.uid: Result.NOT_BETTER for pod in found.useless}
            self._not_proved.is_over()
        except SchedulerAway as error:
            self._not_proved.lasts(str(error))
            refused = {each.pod.uid: Result.UNPROVED for each in chosen}
        return [
            replace(each, result=refused.get(each.pod.uid, each.result), target=targets.get(each.pod.uid, ""))
            if is_to_carry_out(each)
            else each
            for each in attempts
        ]
