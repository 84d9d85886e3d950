"""Facts of the gateway to Kubernetes: answers of the API server, evictions, drift, and genesis.

Aggregates: `podspec.<uid>` (bound, bind failed, resized), `eviction.<uid>`, `drift.<kind>=<id>`, `genesis.cluster`.

Source: event-bus spec, 2.1, 9.3, 12.
"""

from typing import Any, Final

import msgspec

from koordcore.events.descheduling import Inputs
from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.registry import CATALOGUE

GENESIS = AggregateRef("genesis", "cluster")  # The aggregate of the cluster's epoch


@CATALOGUE.register(kind="podspec")
class PodBound(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The API server bound the pod to the node of its placement."""

    node: str  # Name of the node
    placement: int  # Sequence of the `PodPlaced` that was bound
    # Whether the gateway found the pod already bound to this node, and its own binding does not explain the whole pod.
    # Then the pod has changed since, or another client bound it.
    observed: bool = False
    # RFC 3339 time of the answer by the API server's clock, in whole seconds. The API server has set the node, the
    # annotations, the labels and the condition `PodScheduled`. "" if `annotations` and `labels` are not recorded.
    bound_at: str = ""
    annotations: dict[str, str] = {}  # Annotations that the binding set on the pod
    labels: dict[str, str] = {}  # Labels of the node that the API server has copied to the pod


@CATALOGUE.register(kind="podspec")
class PodBindFailed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The API server refused to bind the pod to the node of its placement. The placement is then released."""

    node: str  # Name of the node
    placement: int  # Sequence of the `PodPlaced` that was refused
    reason: str  # "AssignedElsewhere", "Terminating", "Forbidden", "Invalid"
    message: str = ""  # Message of the API server


class ResizedContainer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The resources that a container shall have: resource -> Kubernetes quantity. Others stay as they are."""

    name: str
    requests: dict[str, str]
    limits: dict[str, str] = {}


@CATALOGUE.register(kind="podspec")
class PodResizeRequested(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A component requested other resources for a running pod. The gateway asks the API server for them, in place."""

    initiator: str  # Component that requests it: "recommender"
    containers: list[ResizedContainer]  # Containers whose resources change
    message: str = ""  # Why, one sentence for people


@CATALOGUE.register(kind="podspec")
class PodResizeAnswered(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The API server accepted or refused a resize. The kubelet says in conditions of the pod when it carries it out."""

    request: int  # Sequence of the `PodResizeRequested`
    failure: str = ""  # Why it was refused: "Forbidden", "Invalid" or "NotFound"; "" if it was accepted
    message: str = ""  # Message of the API server


@CATALOGUE.register(kind="eviction")
class PodEvictionRequested(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A component requested the eviction of a pod. The gateway carries it out. Only one request per pod is accepted."""

    namespace: str  # Namespace of the pod
    name: str  # Name of the pod
    node: str = ""  # Node of the pod
    initiator: str  # Component that requests it: "scheduler", "descheduler", "agent", "recommender"
    method: str = "evict"  # "evict" (policy/v1 Eviction, which honours disruption budgets) or "delete" (preemption)
    reason: str  # Reason in the Kubernetes event and condition, for example "Preempted", "Evicted"
    message: str = ""  # Why the pod is evicted, one sentence for people
    grace_period_seconds: int | None = None  # Grace period of the deletion; None: that of the pod
    # Further options of the deletion, as in Kubernetes' DeleteOptions: `propagationPolicy`, `orphanDependents`,
    # `preconditions`, `dryRun`.
    delete_options: dict[str, Any] = {}
    give_up_after_seconds: int = 0  # Time after which the request expires, and must not be carried out; 0: never
    trigger: str = ""  # Plugin, controller or drain on whose behalf the component requests it; "" if it acts for itself
    job: str = ""  # Name of the PodMigrationJob that it belongs to; "" if there is none
    job_uid: str = ""  # Uid of that job; "" if there is none
    round: str = ""  # RFC 3339 time of the round of the descheduler that led to it; "" if none did
    profile: str = ""  # Profile of the descheduler's configuration whose plugin chose the pod; "" if none did
    # The numbers because of which the plugin chose the pod. Empty with a job: the fact of the round has them.
    inputs: Inputs = {}

    @property
    def is_dry_run(self) -> bool:
        """Return whether the eviction is only tried, and the pod stays."""
        return bool(self.delete_options.get("dryRun"))


@CATALOGUE.register(kind="eviction")
class PodEvictionDelayed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt to carry out an eviction failed, and the gateway will repeat it. Each reason is recorded once."""

    # Reason in one word: "TooManyRequests" (a disruption budget refuses it, or the API server is overloaded),
    # "DisruptionBudget" (the same without an API server), "Unauthorized", "Forbidden" (the gateway may not read the
    # job), "ServerError" or "NoAnswer".
    reason: str
    message: str = ""  # One sentence, with the message of the API server


@CATALOGUE.register(kind="eviction")
class PodEvicted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The eviction that a `PodEvictionRequested` requested succeeded: the API server accepted it, or the pod was
    gone.
    """

    gone: bool = False  # True if no pod with this uid existed any more


@CATALOGUE.register(kind="eviction")
class PodEvictionFailed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """An eviction ended without evicting the pod: the API server refused it, it took too long, or it was a dry run."""

    reason: str  # Reason in one word. For an eviction that took too long, the reason of the last delay or "Expired".
    message: str = ""  # Explanation, for example the message of the API server


@CATALOGUE.register(kind="eviction")
class PodEvictionWithdrawn(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A requested eviction must not be carried out any more, because its PodMigrationJob does not want it now, or
    because the workload of the pod cannot spare it any more.

    The fact that deletes, pauses or aborts the job is in the same atomic batch, if the job is changed without an API
    server.
    """

    reason: str  # "JobDeleted", "JobPaused", "JobAborted", "JobEnded" or "LimitReached"
    message: str = ""  # One sentence that names the job


# The end of an eviction that was a dry run.
ONLY_TRIED: Final = PodEvictionFailed(
    reason="DryRun", message="the pod could be evicted; it stays, because deleteOptions ask for a dry run"
)


@CATALOGUE.register(kind="drift")
class DriftObserved(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A comparison of the whole fold with the API server found an object that differs."""

    aggregate: str  # Aggregate of the object, for example "podspec.<uid>"
    difference: str  # "missing-in-log", "missing-in-api" or "differs"
    fingerprint: str  # Digest of the folded and the stored object. An unchanged difference has an equal fingerprint.


@CATALOGUE.register(kind="drift")
class DriftHealed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The difference that a `DriftObserved` reported has ended."""

    aggregate: str  # Aggregate of the object
    # "reobserved" (after three equal drifts, the gateway wrote the object of the API server to the log again) or
    # "vanished" (the next comparison found no difference).
    how: str


@CATALOGUE.register(kind="genesis")
class GenesisRecorded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A new, empty log was filled with the objects that exist in the API server (the genesis)."""

    # Number that grows with each such start. A ConfigMap in the cluster has it too, so that services recognise an older
    # log.
    cluster_epoch: int
    observed: dict[str, int]  # Aggregate kind -> number of objects that were written to the log
