"""Capacity questions to a scheduler that has folded a small log."""

from koord_scheduler.domain.fit.answering import answer_question
from koord_scheduler.domain.loop.folding.log import fold
from koord_scheduler.domain.loop.state.state import SchedulerState
from koordcore.requests.fit import FitAnswer, FitRequest
from support.scheduler.scheduling import SmallLog, frameworks


def asked(log: SmallLog, request: FitRequest, now: float = 0.0) -> FitAnswer:
    """The answer of a scheduler that has folded the log."""
    state = SchedulerState(frameworks())
    for stored in log.events:
        fold(state, stored)
    return answer_question(state, request, now, lambda other: asked(log, other, now))


def nodes_of(answer: FitAnswer) -> dict[str, str]:
    """Pod -> node."""
    return {name: each.node for each in answer.nodes for name in each.pods}
