"""What the manager's two loops share: the context that they work on, whether they may decide, how the log answered.

Next: `cycle` (the control round), `documents` (what is applied).
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
    """Nodes (tokens) whose desired state this process has written, when all of them were last up to date, and the term
    (its epoch) whose beginning has been folded.
    """

    nodes: set[str] = field(default_factory=set[str])
    flushed_at: float = float("-inf")
    epoch: int = 0


class ManagerContext(NamedTuple):
    """What the cycle works on and with.

    folded     waits until a position is folded; gives the reason why it will not be, None when it is
    options    gates and flags of admission
    standalone there is no API server: workloads get their pods here, and requests to evict are carried out here
    explanations   where admission's decisions are told; None: nowhere
    metrics    of the control rounds; None: nobody counts
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
    """Why this instance must not decide now; None when it may.

    A new term begins with folding what the log held when it began: names are unique only for who knows all of them.
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
    """The position that an answer of the log tells us of: our own facts, or the one that was in the way."""
    match outcome:
        case Appended(last_seq=seq):
            return seq
        case Conflict(moved=moved):
            return max((seq for _, seq in moved), default=0)
        case _:
            return 0


def epoch_of(context: ManagerContext) -> int:
    """Fencing number of the present term; 0 when it has just ended (the log's expectations still protect it)."""
    term = context.leadership.term
    return term.epoch if term else 0
