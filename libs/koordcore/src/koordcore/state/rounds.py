"""State of the aggregate of the descheduler's rounds: what one round leaves to the next, whoever leads.

The events are in `koordcore.events.descheduling.decisions`.
"""

from koordcore.events.descheduling.decisions import DeletionCostsDecided, DetectorState, RoundMove
from koordcore.state.base import AggregateState


class RoundsState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """Memory of the descheduler's rounds.

    Attributes:
        started_at: RFC 3339 time of the last round that has a fact; "" if there was none.
        moves: Pods that have to leave because of that round, until all its effects were asked for.
        closed: Nodes that it closes for new pods, until then.
        detectors: Usage ("node" or "prod") -> name of a node -> state of its anomaly detector. Detectors that were
            reset are absent.
        costs: Deletion costs that have to be written to pods; None if there are none. Only the aggregate
            `descheduling.costs` has them, and it has nothing else.
        tried: Pods that would leave if nothing were in dry run, as `RoundMove.choice`. Only the aggregate
            `descheduling.dry-runs` has them, and it has nothing else.
        refusals: Pod that is refused, as `RoundMove.choice` -> codes of the reasons, sorted. Only the aggregate
            `descheduling.refusals` has them, and it has nothing else.
    """

    started_at: str = ""
    moves: list[RoundMove] = []
    closed: list[str] = []
    detectors: dict[str, dict[str, DetectorState]] = {}
    costs: DeletionCostsDecided | None = None
    tried: list[str] = []
    refusals: dict[str, list[str]] = {}
