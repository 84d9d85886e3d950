"""Facts of the gateway to Kubernetes: answers of the API server, evictions, drift, and genesis.

Aggregates: `podspec.<uid>` (bound, bind failed),
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
    """The API server bound the pod to the node of its placement.

    Attributes:
        placement: Sequence of the `PodPlaced` that was bound.
        observed: Whether the pod was found bound: an answer was lost, or somebody else bound it there.
    """

    node: str
    placement: int
    observed: bool = False


@CATALOGUE.register(kind="podspec")
class PodBindFailed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The API server refused to bind the pod to the node of its placement. The placement is released.

    Attributes:
        placement: Sequence of the `PodPlaced` that was refused.
        reason: "AssignedElsewhere", "Terminating", "Forbidden", "Invalid".
        message: Message of the API server.
    """

    node: str
    placement: int
    reason: str
    message: str = ""


@CATALOGUE.register(kind="eviction")
class PodEvictionRequested(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A component requested the eviction of a pod. Only one request per pod is accepted.

    Attributes:
        initiator: Component that requests it: "scheduler", "descheduler", "agent".
        method: "evict" (policy/v1 Eviction, which honours disruption budgets) or "delete" (preemption).
        reason: Reason in the Kubernetes event and condition, for example "Preempted", "Evicted".
        give_up_after_seconds: Time for which a disruption budget may delay it; 0: no limit.
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
    """The API server accepted the eviction, or the pod no longer existed.

    Attributes:
        gone: Whether the pod with this uid no longer existed.
    """

    gone: bool = False


@CATALOGUE.register(kind="eviction")
class PodEvictionFailed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The eviction was given up: the API server refused it, or a disruption budget delayed it too long."""

    reason: str
    message: str = ""


@CATALOGUE.register(kind="drift")
class DriftObserved(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A sweep found a difference between the fold and the API server.

    Attributes:
        aggregate: Aggregate with the difference, for example "podspec.<uid>".
        difference: "missing-in-log", "missing-in-api" or "differs".
        fingerprint: Digest of both sides; equal drifts have equal fingerprints.
    """

    aggregate: str
    difference: str
    fingerprint: str


@CATALOGUE.register(kind="drift")
class DriftHealed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A drift ended.

    Attributes:
        how: "reobserved" (after three equal drifts the object was observed again) or "vanished".
    """

    aggregate: str
    how: str


@CATALOGUE.register(kind="genesis")
class GenesisRecorded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The log was begun with the objects of the API server.

    Attributes:
        cluster_epoch: Number that grows with each genesis. The ConfigMap has it too, so that an older log is
            recognised.
        observed: Aggregate kind -> number of aggregates.
    """

    cluster_epoch: int
    observed: dict[str, int]
