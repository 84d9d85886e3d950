"""Stored events for tests of what `koord explain` tells: at second `seq` of a day, all in one trace."""

from typing import Final

from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, BasedOn, Draft, Event, Origin, StoredEvent
from koordcore.events.pod import NodeScore, PlacementExplanation, PluginExclusion

TRACE: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
EXPLANATION: Final = PlacementExplanation(
    nodes_considered=5,
    nodes_feasible=2,
    exclusions=[PluginExclusion("NodeResourcesFit", 3, {"Insufficient cpu": 2, "Insufficient memory": 1})],
    top=[NodeScore("n.1", 190, {"Fit": 90, "Taints": 100, "Affinity": 0})],
    policy_version="v1",
    based_on=BasedOn(ev=8, obs=3),
)


def stored(seq: int, ref: str, event: Event, *, second: int | None = None, based_on: int = 0) -> StoredEvent:
    """An event of an aggregate `kind.id` at a position. second: when it happened; None: the same number."""
    kind, _, id_ = ref.partition(".")
    origin = Origin(
        causation_id=str(seq),
        correlation_id="u",
        actor="test",
        occurred_at=f"2026-01-01T00:00:{seq if second is None else second:02}.000000Z",
        based_on=based_on,
        traceparent=TRACE,
    )
    sealed = CATALOGUE.seal([Draft(AggregateRef(kind, id_), event, 0)], origin)[0]
    return StoredEvent(seq, sealed.ref, sealed.headers, sealed.body, stored_at_ns=(100 - seq) * 1_000_000)
