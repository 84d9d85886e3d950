"""The services that the loops of the manager share, and the check whether they may decide.

Next: `cycle` (the controllers), `documents.processing` (`koord apply`).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from koordcore.bus.client.connection import NoAnswer, NotConnected
from koordcore.ports.clock import Clock
from koordcore.ports.desired import DesiredStore
from koordcore.ports.eventlog import Appended, AppendOutcome, Conflict, EventLog
from koordcore.ports.leadership import Leadership
from koordcore.ports.observations import ObservationLog
from koordcore.service.telemetry.logging import Logger
from koordcore.service.telemetry.tracing import Tracer

from koord_manager.domain.admission.options import Options
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.shell.appender import NotAppended
from koord_manager.shell.controller_metrics import ControllerMetrics
from koord_manager.shell.intake import Intake


@dataclass(slots=True)
class TermState:
    """State of the present term of leadership.

    Attributes:
        nodes: Tokens of the nodes whose desired state this process has written.
        flushed_at: Time of the last write of all pending desired states, in seconds of the event loop.
        epoch: Epoch of the term for which the log was folded to its head.
    """

    nodes: set[str] = field(default_factory=set[str])
    flushed_at: float = float("-inf")
    epoch: int = 0


class ManagerContext(NamedTuple):
    """The services that the loops of the manager use.

    Attributes:
        folded: Waits until a position is folded; returns the reason if the fold has halted, otherwise None.
        halted: Returns the reason if the fold has halted, otherwise None.
        conflict_pause: Returns the seconds to wait after a conflict.
        options: Gates and flags of admission.
        standalone: Whether there is no API server, so that the manager itself handles workloads and evictions.
        explanations: Stream of admission decisions, or None if they are not published.
        metrics: Metrics of the controllers, or None if nothing is counted.
    """

    view: ManagerView
    intake: Intake
    log: EventLog
    desired: DesiredStore
    clock: Clock
    leadership: Leadership
    tracer: Tracer
    logger: Logger
    actor: str
    folded: Callable[[int], Awaitable[str | None]]
    halted: Callable[[], str | None]
    new_uid: Callable[[], str]
    control_seconds: float
    desired_seconds: float
    term_state: TermState
    conflict_pause: Callable[[], float]
    options: Options = Options()
    explanations: ObservationLog | None = None
    metrics: ControllerMetrics | None = None
    standalone: bool = True


async def reason_not_to_decide(context: ManagerContext) -> str | None:
    """Return the reason why this instance must not decide now, or None if it may.

    At the beginning of a term, the log is folded to its head first, because names are unique only among all objects.
    """
    term = context.leadership.term
    if term is None:
        return "this instance does not lead; ask the leader"
    halted = context.halted()
    if halted is not None:
        return halted
    if context.term_state.epoch != term.epoch:
        try:
            head = await context.log.head()
        except (NoAnswer, NotConnected) as error:
            return f"the log is away: {error}"
        halted = await context.folded(head.last_seq)
        if halted is not None:
            return halted
        context.term_state.epoch = term.epoch
    return None


def reached(outcome: AppendOutcome | NotAppended) -> int:
    """Return the last position that is known from the outcome of an append, or 0 if it names none.

    For stored facts it is their last position, for a conflict that of the conflicting fact.
    """
    match outcome:
        case Appended(last_seq=seq):
            return seq
        case Conflict(moved=moved):
            return max((seq for _, seq in moved), default=0)
        case _:
            return 0


def epoch_of(context: ManagerContext) -> int:
    """Return the number of the present leadership term, or 0 if it has ended; the log then refuses the append."""
    term = context.leadership.term
    return term.epoch if term else 0
