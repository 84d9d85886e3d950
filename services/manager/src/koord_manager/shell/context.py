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
    """State of this process in its present term of leadership.

    Attributes:
        nodes: Tokens of the nodes whose desired state this process has written in this term.
        flushed_at: Time of the last write of collected changes of desired states, in seconds of the event loop's
            clock.
        epoch: Number of the term at whose beginning the log was folded to its head; 0 before the first.
    """

    nodes: set[str] = field(default_factory=set[str])
    flushed_at: float = float("-inf")
    epoch: int = 0


class ManagerContext(NamedTuple):
    """The services that the loops of the manager use.

    Attributes:
        view: The folded cluster.
        intake: Documents of `koord apply` and `koord delete` that wait.
        log: The log.
        desired: Key-value bucket with the desired states of nodes.
        leadership: Whether this instance leads.
        actor: Name of this service in the facts that it writes.
        folded: Waits until a position is folded. It returns the reason if the fold has halted, otherwise None.
        halted: Returns the reason if the fold has halted, otherwise None.
        new_uid: Returns a new uid for an object.
        control_seconds: Seconds between two cycles.
        desired_seconds: Seconds for which changes of desired states are collected.
        term_state: State of the present term.
        conflict_pause: Returns the seconds to wait after a conflict.
        options: Feature gates and flags of admission.
        explanations: Stream for admission decisions, or None if they are not published.
        metrics: Metrics of the controllers, or None if nothing is counted.
        standalone: Whether there is no API server, so that the manager itself handles workloads and evictions.
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
