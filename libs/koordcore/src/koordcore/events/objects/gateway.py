"""What the gateway to Kubernetes did and found: answers of the API server, requests to evict, drift, genesis.

Aggregates: `podspec.<uid>` (bound, bind failed: the API server's word on the pod, written by the same ingester),
`eviction.<uid>`, `drift.<kind>=<id>`, `genesis.cluster`.

Source:
    event-bus spec, 2.1, 9.3, 12
"""

from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.registry import CATALOGUE

GENESIS = AggregateRef("genesis", "cluster")
"""The aggregate of the cluster's epoch."""


@CATALOGUE.register(kind="podspec")
class PodBound(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The API server has the pod on the node that was chosen for it.

    Attributes:
        placement: Sequence of the `PodPlaced` that was carried out.
        observed: It was found bound: an earlier attempt's answer was lost, or somebody else bound it there.
    """

    node: str
    placement: int
    observed: bool = False


@CATALOGUE.register(kind="podspec")
class PodBindFailed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The API server will not bind the pod to the node that was chosen for it; the place is to be given back.

    Attributes:
        placement: Sequence of the `PodPlaced` that cannot be carried out.
        reason: "AssignedElsewhere", "Terminating", "Forbidden", "Invalid".
        message: What the API server said.
    """

    node: str
    placement: int
    reason: str
    message: str = ""


@CATALOGUE.register(kind="eviction")
class PodEvictionRequested(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody wants the pod off its node. Written by who wants it, expecting that nobody else asked before.

    Attributes:
        initiator: "scheduler", "descheduler", "agent".
        method: "evict" (policy/v1 Eviction: disruption budgets are honoured) or "delete" (preemption).
        reason: Of the Kubernetes event and condition, e.g. "Preempted", "Evicted".
        give_up_after_seconds: How long a disruption budget may hold it up; 0: for ever.
    """

    namespace: str
    name: str
    node: str = ""
    initiator: str
    method: str = "evict"
    reason: str
    message: str = ""
    grace_period_seconds: int | None = None
    give_up_after_seconds: int = 0


@CATALOGUE.register(kind="eviction")
class PodEvicted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The API server accepted the eviction, or the pod was gone already.

    Attributes:
        gone: The pod, or this one of that name, did not exist any more.
    """

    gone: bool = False


@CATALOGUE.register(kind="eviction")
class PodEvictionFailed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The eviction was given up: refused by the API server, or held up by a disruption budget for too long."""

    reason: str
    message: str = ""


@CATALOGUE.register(kind="drift")
class DriftObserved(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A sweep found the fold and the API server apart.

    Attributes:
        aggregate: e.g. "podspec.<uid>".
        difference: "missing-in-log", "missing-in-api" or "differs".
        fingerprint: Digest of what was found on both sides: equal drifts have equal ones.
    """

    aggregate: str
    difference: str
    fingerprint: str


@CATALOGUE.register(kind="drift")
class DriftHealed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A drift is over.

    Attributes:
        how: "reobserved" (three equal drifts: the object was observed anew) or "vanished".
    """

    aggregate: str
    how: str


@CATALOGUE.register(kind="genesis")
class GenesisRecorded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The log was built from the API server's objects.

    Attributes:
        cluster_epoch: Bumped with each genesis; also in the ConfigMap, so that a log of an older epoch is recognised.
        observed: Aggregate kind -> number of aggregates.
    """

    cluster_epoch: int
    observed: dict[str, int]
