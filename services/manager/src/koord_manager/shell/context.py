"""The services that the loops of the manager share, and the check whether they may decide."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from koordcore.bus.client.connection import NoAnswer, NotConnected
from koordcore.ports.clock import Clock
from koordcore.ports.desired import DesiredStore
from koordcore.ports.eventlog import Appended, AppendOutcome, Conflict, EventLog, ObservationLog
from koordcore.ports.leadership import Leadership
from koordcore.service.telemetry.logging import Logger
from koordcore.service.telemetry.tracing import Tracer

from koord_manager.domain.admission.options import Options
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.shell.appender import NotAppended
from koord_manager.shell.controller_metrics import ControllerMetrics
from koord_manager.shell.intake import Intake


@dataclass(slots=True)
class TermState:
    # Tokens of the nodes whose desired state this process has written in this term.
    nodes: set[str] = field(default_factory=set[str])
    # Time of the last write of collected changes of desired states, in seconds of the event loop's clock.
    flushed_at: float = float("-inf")
    epoch: int = 0  # Number of the term at whose beginning the log was folded to its head; 0 before the first


class ManagerContext(NamedTuple):
    view: ManagerView
    intake: Intake  # Documents of `koord apply` and `koord delete` that wait
    log: EventLog
    desired: DesiredStore  # Key-value bucket with the desired states of nodes
    clock: Clock
    leadership: Leadership
    tracer: Tracer
    logger: Logger
    actor: str  # Name of this service in the facts that it writes
    # Waits until a position is folded. It returns the reason if the fold has halted, otherwise None.
    folded: Callable[[int], Awaitable[str | None]]
    halted: Callable[[], str | None]  # Returns the reason if the fold has halted, otherwise None
    new_uid: Callable[[], str]
    control_seconds: float  # Seconds between two cycles
    desired_seconds: float  # Seconds for which changes of desired states are collected
    term_state: TermState
    conflict_pause: Callable[[], float]  # Returns the seconds to wait after a conflict
    options: Options = Options()
    explanations: ObservationLog | None = None  # Stream for admission decisions, or None if they are not published
    metrics: ControllerMetrics | None = None  # Metrics of the controllers, or None if nothing is counted
    # Whether there is no API server, so that the manager itself handles workloads and evictions.
    standalone: bool = True
    # Whether the first objects of an API server are entering an empty log, so that decisions wait for the rest of them.
    is_importing: Callable[[], bool] = lambda: False


async def reason_not_to_decide(context: ManagerContext) -> str | None:
    """Return the reason why this instance must not decide now, or None if it may.

    When a term of leadership begins, first wait until the log is folded to its head. Otherwise two objects could get
    the same name.
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
        context.term_state.nodes.clear()  # those of the term before; some may have been deleted meanwhile
    return None


def reached(outcome: AppendOutcome | NotAppended) -> int:
    """Return the position up to which the log has to be folded after an append.

    For stored facts it is the position of the last one. For a conflict it is that of the conflicting fact. It is 0 if
    the outcome has no position.
    """
    match outcome:
        case Appended(last_seq=seq):
            return seq
        case Conflict(moved=moved):
            return max((seq for _, seq in moved), default=0)
        case _:
            return 0


def epoch_of(context: ManagerContext) -> int:
    """Return the number of the present leadership term, or 0 if the term has ended. The log refuses appends with 0."""
    term = context.leadership.term
    return term.epoch if term else 0
