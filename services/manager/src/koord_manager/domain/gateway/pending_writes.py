"""What changed in the fold since it was last looked at, so that only those objects are asked whether a write is owed.

    fold event -> PendingWrites.note -> keys -> owed_* (binding, eviction, node_writes, node_objects) -> requests

Nothing here has to survive: a new leader seeds it from the fold, and every write is decided from the fold alone.
"""

from collections import deque
from collections.abc import Iterable

from koordcore.events.agents.nodestate import NodeTopologyReported
from koordcore.events.envelope import AggregateRef, Event, namespaced_from_token
from koordcore.events.management.adjustment import MassAbnormalityChanged
from koordcore.events.management.quota_profile import QuotaProfileRendered
from koordcore.events.objects.custom import CustomObjectDeleted, CustomObjectObserved, plural_of
from koordcore.events.objects.gateway import PodBindFailed, PodBound, PodEvictionRequested
from koordcore.events.objects.mirror import ConfigRejected, PodSpecAdded, PodSpecChanged
from koordcore.events.scheduling.pod import PodNominated, PodNominationCleared, PodPlaced
from koordcore.protocol.config.sections import SECTIONS
from koordcore.protocol.objects import Pod
from koordcore.state.aggregates import EvictionState, NodeSpecState, PodSpecState, PodState, QuotaProfileState

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.pod_status_writes import (
    MANAGER,
    Involved,
    KubernetesEvent,
    about_pod,
    failed_scheduling,
    preempted,
    scheduled,
)
from koord_manager.domain.gateway.published_status import ref_of_object
from koord_manager.domain.gateway.status_writes import STATUS_KINDS

MOST_WORDS = 10_000
"""Kubernetes events that may wait; the oldest are dropped: facts are in the log, these are for `kubectl describe`."""


class PendingWrites:
    """Keys that have to be looked at. One task owns an instance; sets keep the order of insertion.

    bindings, evictions, nominated    pods (uids)
    nodes                             nodes (tokens)
    objects                           aggregates whose facts stand on custom resources
    words                             Kubernetes events to record
    """

    def __init__(self) -> None:
        self.bindings: dict[str, None] = {}
        self.evictions: dict[str, None] = {}
        self.nominated: dict[str, str] = {}
        self.nodes: dict[str, None] = {}
        self.objects: dict[AggregateRef, None] = {}
        self.words: deque[KubernetesEvent] = deque(maxlen=MOST_WORDS)
        self._profiles_of: dict[tuple[str, str], dict[AggregateRef, None]] = {}  # by namespace and name of a root quota

    def seed(self, view: ManagerView) -> None:
        """Everything that might be owed, from the fold: for a leader that has just begun."""
        self.bindings = {uid: None for uid, pod in view.state.of_kind(PodState).items() if pod.node}
        self.evictions = dict.fromkeys(view.state.of_kind(EvictionState))
        self.nodes = dict.fromkeys(view.state.of_kind(NodeSpecState))
        self.nominated = {uid: pod.nominated for uid, pod in view.state.of_kind(PodState).items() if pod.nominated}
        self.objects = {ref: None for ref, _ in view.state if ref.kind in STATUS_KINDS}
        self.words.clear()
        self._profiles_of = {}
        for id_, profile in view.state.of_kind(QuotaProfileState).items():
            self._note_profile(AggregateRef("quotaprofile", id_), profile.quota_namespace, profile.quota_name)

    def note(self, view: ManagerView, folded: Iterable[tuple[AggregateRef, Event]]) -> None:
        """Take in events that the view has folded."""
        for ref, event in folded:
            self._note(view, ref, event)

    def _note(self, view: ManagerView, ref: AggregateRef, event: Event) -> None:
        match event:
            case PodPlaced():
                self.bindings[ref.id] = None
            case PodSpecAdded() | PodSpecChanged():
                if ref.id in view.state.of_kind(PodState):
                    self.bindings[ref.id] = None
            case PodBound(node=node, observed=False):
                pod = _pod(view, ref.id)
                if pod is not None:
                    self.words.append(scheduled(ref.id, pod.metadata.namespace, pod.metadata.name, node))
            case PodBindFailed():
                pod = _pod(view, ref.id)
                if pod is not None:
                    message = f"binding rejected: {event.reason}: {event.message}"
                    self.words.append(failed_scheduling(ref.id, pod.metadata.namespace, pod.metadata.name, message))
            case PodEvictionRequested():
                self.evictions[ref.id] = None
                self.words.append(_eviction_word(ref.id, event))
            case PodNominated(node=node):
                self.nominated[ref.id] = node
            case PodNominationCleared():
                self.nominated[ref.id] = ""
            case MassAbnormalityChanged(active=True):
                self.words.append(_mass_abnormal(view, event))
            case ConfigRejected():
                self.words.extend(_config_words(view, event))
            case NodeTopologyReported():
                self.nodes[ref.id] = None
            case QuotaProfileRendered():
                self.objects[ref] = None
                self._note_profile(ref, event.quota_namespace, event.quota_name)
            case CustomObjectObserved():
                self._note_object(ref)
            case CustomObjectDeleted():
                self._note_root_quota(ref)
            case _:
                if ref.kind in ("nodespec", "nodepolicy"):
                    self.nodes[ref.id] = None
                elif ref.kind in STATUS_KINDS:
                    self.objects[ref] = None

    def _note_object(self, ref: AggregateRef) -> None:
        plural, names = plural_of(ref.id), ref.id.partition("=")[2]
        if plural == "noderesourcetopologies":
            self.nodes[names] = None
        elif (about := ref_of_object(plural, *namespaced_from_token(names))) is not None:
            self.objects[about] = None
            self._note_root_quota(ref)

    def _note_profile(self, ref: AggregateRef, namespace: str, name: str) -> None:
        self._profiles_of.setdefault((namespace, name), {})[ref] = None

    def _note_root_quota(self, ref: AggregateRef) -> None:
        """A quota that its profile renders was changed or removed by somebody: it is written again."""
        if plural_of(ref.id) == "elasticquotas":
            self.objects |= self._profiles_of.get(namespaced_from_token(ref.id.partition("=")[2]), {})


def _pod(view: ManagerView, uid: str) -> Pod | None:
    spec = view.state.of_kind(PodSpecState).get(uid)
    return spec.object if spec is not None else None


def _eviction_word(uid: str, event: PodEvictionRequested) -> KubernetesEvent:
    if event.method == "delete":
        return preempted(uid, event.namespace, event.name, event.message or "Preempted")
    message = event.message or f"evicted by {event.initiator}"
    return KubernetesEvent(
        about_pod(uid, event.namespace, event.name), event.reason, message, "Warning", f"koord-{event.initiator}"
    )


def _mass_abnormal(view: ManagerView, event: MassAbnormalityChanged) -> KubernetesEvent:
    """Said about the configuration that judges the nodes: it is where somebody would turn it off."""
    namespace, name = view.slo_config_name
    found = view.config(namespace, name)
    uid = found.object.metadata.uid if found is not None and found.object is not None else ""
    message = (
        f"{event.abnormal} of {event.nodes} nodes look abnormal, weights are lowered on at most {event.cap}: "
        f"{', '.join(event.examples)}"
    )
    return KubernetesEvent(
        Involved("ConfigMap", "v1", namespace, name, uid), "MassAbnormalNodes", message[:1024], "Warning", MANAGER
    )


def _config_words(view: ManagerView, event: ConfigRejected) -> list[KubernetesEvent]:
    config = view.config(event.namespace, event.name)
    uid = config.object.metadata.uid if config is not None and config.object is not None else ""
    involved = Involved("ConfigMap", "v1", event.namespace, event.name, uid)
    reason_of = {name.key: table.parse_error_event for name, table in SECTIONS.items()}
    return [
        KubernetesEvent(involved, reason_of.get(key) or "SLOCfgUnmarshalFailed", reason[:1024], "Warning", MANAGER)
        for key, reason in event.reasons.items()
    ]
