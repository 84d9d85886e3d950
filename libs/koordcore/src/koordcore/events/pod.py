"""What was decided about a pod. Writer: schedulers. Aggregate: `pod.<uid>`.

source    event-bus spec, 2.1 and 4.2
"""

from koordcore.events.envelope import Event
from koordcore.events.explanation import PlacementExplanation
from koordcore.events.registry import CATALOGUE


@CATALOGUE.register(kind="pod")
class PodPlaced(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A node was chosen for the pod; the node's ledger changed in the same atomic batch.

    node        name of the chosen node
    requests    what the pod takes: cpu in milli-cores, everything else in whole units
    attempt     number of this scheduling attempt, from 1
    queued_at   RFC 3339 time at which the pod was submitted
    """

    namespace: str
    name: str
    node: str
    requests: dict[str, int]
    attempt: int
    queued_at: str
    explanation: PlacementExplanation


@CATALOGUE.register(kind="pod")
class PodReleased(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The pod no longer holds its place; what it took was returned to the node in the same atomic batch.

    reason    "deleted" (gone from the API), "finished" (phase Succeeded or Failed), "node-gone"
    """

    namespace: str
    name: str
    node: str
    reason: str
