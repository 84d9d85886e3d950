"""The ledger of a node: the pods that hold its resources, with their amounts and allocations. Writer: schedulers.

Aggregate: `node.<name>`.

Source: event-bus spec, 2.1 and 4.2.
"""

from collections.abc import Mapping, Sequence

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import pod_limits, pod_requests
from koordcore.protocol.priority import priority_class
from koordcore.protocol.qos import kube_qos, qos
from koordcore.values.allocation import NOTHING, Allocation

# Pod annotation: how a simulated host lets the pod use what it requests.
USAGE_PROFILE = "simulation.koordstream.io/usage"

AGENT_LABELS = (keys.EVICTION_ENABLED, keys.SUB_PRIORITY)
# Annotations of pods that agents read, besides the classes.
AGENT_ANNOTATIONS = (
    keys.CPU_BURST,
    keys.CPU_QOS,
    keys.MEMORY_QOS,
    keys.BLKIO_QOS,
    keys.NETWORK_QOS,
    keys.EVICTION_POLICY,
    keys.EVICTION_PRIORITY,
    keys.RESCTRL,
    keys.CONFIG_MIRROR,
)


class PodOnNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Entry of a pod in the ledger of its node, with the fields that the node's agent needs."""

    uid: str
    namespace: str
    name: str
    requests: dict[str, int]  # Resource -> requested amount: milli-cores for cpu, whole units for everything else
    limits: dict[str, int] = {}  # Resource -> limit, in the units of `requests`. An absent resource has no limit.
    qos: str  # Koordinator QoS class with defaults (LSE, LSR, LS, BE, SYSTEM)
    kube_qos: str  # Kubernetes QoS class, which decides the cgroup directory
    priority_class: str  # Koordinator priority class with defaults, for example "koord-prod"
    usage_profile: str = ""  # Annotation `simulation.koordstream.io/usage`; "" if absent. Only simulated hosts read it.
    priority: int | None = None  # spec.priority; None if not set
    labels: dict[str, str] = {}  # Labels of the pod whose keys are in `AGENT_LABELS`, which an agent reads
    annotations: dict[str, str] = {}  # Annotations of the pod whose keys are in `AGENT_ANNOTATIONS`
    # What the pod got besides its requests: CPUs, NUMA zones, devices ... The agent applies its cpuset.
    allocation: Allocation = NOTHING


class PodDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Labels and annotations of a pod that an agent reads and that may change while the pod runs."""

    labels: dict[str, str] = {}  # Labels of the pod whose keys are in `AGENT_LABELS`, which an agent reads
    annotations: dict[str, str] = {}  # Annotations of the pod whose keys are in `AGENT_ANNOTATIONS`
    usage_profile: str = ""  # Annotation `simulation.koordstream.io/usage`; "" if absent


def pod_details(pod: Pod) -> PodDetails:
    return PodDetails(
        labels=_only(pod.metadata.labels, AGENT_LABELS),
        annotations=_only(pod.metadata.annotations, AGENT_ANNOTATIONS),
        usage_profile=pod.metadata.annotations.get(USAGE_PROFILE, ""),
    )


def details_of(entry: PodOnNode) -> PodDetails:
    """Return the labels and annotations in a ledger entry, with the values that the pod had when it was placed."""
    return PodDetails(labels=entry.labels, annotations=entry.annotations, usage_profile=entry.usage_profile)


def pod_on_node(uid: str, pod: Pod, allocation: Allocation = NOTHING) -> PodOnNode:
    """Return a new entry for the ledger of a node from a pod object.

    Args:
        allocation: CPUs, zones, devices and Reservation that the pod got besides its requests; by default none.
    """
    return PodOnNode(
        uid=uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        requests=pod_requests(pod),
        limits=pod_limits(pod),
        qos=qos(pod),
        kube_qos=kube_qos(pod),
        priority_class=priority_class(pod),
        usage_profile=pod.metadata.annotations.get(USAGE_PROFILE, ""),
        priority=pod.spec.priority,
        labels=_only(pod.metadata.labels, AGENT_LABELS),
        annotations=_only(pod.metadata.annotations, AGENT_ANNOTATIONS),
        allocation=allocation,
    )


def _only(entries: Mapping[str, str], wanted: Sequence[str]) -> dict[str, str]:
    return {key: entries[key] for key in wanted if key in entries} if entries else {}


@CATALOGUE.register(kind="node")
class NodeResourcesTaken(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The ledger of the node changed: pods were placed there and hold resources of it."""

    pods: list[PodOnNode]  # Entries of the added pods


@CATALOGUE.register(kind="node")
class NodeResourcesReturned(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The ledger of the node changed: pods released the resources that they held there."""

    pods: list[str]  # Uids of the pods


def users_of_unbound_claims(event: NodeResourcesTaken | NodeResourcesReturned) -> list[str]:
    """Return the uids of the pods that an event adds and that have claims which are not bound yet."""
    if not isinstance(event, NodeResourcesTaken):
        return []
    return [pod.uid for pod in event.pods if pod.allocation.volume_claims]


def pods_after(
    pods: Mapping[str, PodOnNode], event: NodeResourcesTaken | NodeResourcesReturned
) -> dict[str, PodOnNode]:
    """Return uid -> entry of the pods of a node after one event of its ledger. `pods` is not changed.

    The fold of the log and the agent, which applies pushed events, share this function.
    """
    if isinstance(event, NodeResourcesTaken):
        return {**pods, **{pod.uid: pod for pod in event.pods}}
    gone = set(event.pods)
    return {uid: pod for uid, pod in pods.items() if uid not in gone}
