"""Collect the objects for which a write to the API server may be pending.

`PendingWrites.note` adds the keys of the objects that a folded event concerns to a work queue. The outbox takes a key
and calls the `pending_*` functions, which decide the requests from the fold. So the queue need not survive a restart: a
new leader adds the keys of all objects.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

from koordcore.events.envelope import AggregateRef, Event, name_from_token, namespaced_from_token
from koordcore.events.gateway import (
    PodBindFailed,
    PodBound,
    PodEvicted,
    PodEvictionFailed,
    PodEvictionRequested,
    PodEvictionWithdrawn,
    PodResizeRequested,
)
from koordcore.events.migration import MigrationAdvanced, MigrationEnded, MigrationHeld
from koordcore.events.node_ledger import NodeResourcesTaken, PodOnNode
from koordcore.events.nodepolicy import MassAbnormalityChanged
from koordcore.events.nodestate import DeviceInventoryChanged, NodeTopologyReported
from koordcore.events.objects import (
    ConfigRejected,
    CustomObjectDeleted,
    CustomObjectObserved,
    PodSpecAdded,
    PodSpecChanged,
    plural_of,
)
from koordcore.events.pod import (
    PodDeviceUnhealthy,
    PodNominated,
    PodNominationCleared,
    PodPlaced,
    PodReallocated,
    PodReleased,
)
from koordcore.events.quota import QuotaProfileRendered
from koordcore.protocol import keys
from koordcore.protocol.config.sections import SECTIONS
from koordcore.protocol.objects import Pod
from koordcore.state.aggregates import ConfigState, EvictionState, NodeSpecState, PodSpecState, PodState
from koordcore.state.index import IdsByKey
from koordcore.stories.modifications import DESCHEDULER

from koord_manager.domain.admission.context.facts import QUOTA_PROFILES
from koord_manager.domain.cluster.mirrored_kinds import BUDGETS
from koord_manager.domain.cluster.view import DEVICES, MIGRATION_JOBS, TOPOLOGIES, ManagerView
from koord_manager.domain.cluster.work_queue import WorkQueue
from koord_manager.domain.gateway.claim_steps import CLAIMS, FAILED
from koord_manager.domain.gateway.drains import DRAIN_KINDS, DrainEvents
from koord_manager.domain.gateway.eviction import Ended, Waits
from koord_manager.domain.gateway.migrations import answer_event, migration_events
from koord_manager.domain.gateway.node_writes import pending_status
from koord_manager.domain.gateway.objects.reservation_object import (
    ReservationNames,
    pending_pod_annotations,
    reservation_ref,
)
from koord_manager.domain.gateway.pod_status_writes import (
    MANAGER,
    Involved,
    KubernetesEvent,
    about_pod,
    device_health,
    failed_scheduling,
    preempted,
    scheduled,
)
from koord_manager.domain.gateway.promises import Promises
from koord_manager.domain.gateway.published_status import ref_of_object
from koord_manager.domain.gateway.retry_indexes import PodsByClaim, ProfilesByQuota
from koord_manager.domain.gateway.status_writes import STATUS_KINDS

BINDING: Final = "gateway-binding"
EVICTION: Final = "gateway-eviction"
RESIZE: Final = "gateway-resize"
NODE: Final = "gateway-node"
STATUS: Final = "gateway-status"
QUEUES: Final = (BINDING, EVICTION, RESIZE, NODE, STATUS)
"""The queues of the gateway, most urgent first. Their keys are uids of pods, tokens of nodes, and `kind/id` of an
aggregate whose status is written to a custom resource."""
MAX_EVENTS: Final = 100_000
"""Maximum number of Kubernetes events that wait, some 40 MiB; the oldest are dropped, because the facts are in the log.

Bindings come first, so the events of a burst of pods are written after it."""
RECENT: Final = timedelta(minutes=2)
"""Age of a placement up to which a new leader records its event again, because the leader before may not have done it.
It is longer than a lease and the longest queue of events at the shipped rate limit."""
FIRST_DELAY_SECONDS: Final = 0.2
LONGEST_DELAY_SECONDS: Final = 30.0


class PendingWrites:
    """Keys of objects for which a write to the API server may be pending, and Kubernetes events to record.

    Only one task may use an instance.

    Args:
        jitter: Function that returns a factor for the delays of the queue, as in `WorkQueue`.
    """

    def __init__(self, jitter: Callable[[], float] = lambda: 1.0) -> None:
        # Keys of the objects, in the queues of `QUEUES`.
        self.queue = WorkQueue(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS, jitter)
        self.nominated: dict[str, str] = {}  # Uid of a pod -> node to write as its nominated node
        # Uid of a pod -> node to which it is no longer nominated, and to which nothing else has nominated it since.
        self.denominated: dict[str, str] = {}
        # Kubernetes events to record, at most `MAX_EVENTS`; if there are more, the oldest are dropped.
        self.events: deque[KubernetesEvent] = deque(maxlen=MAX_EVENTS)
        self._profiles = ProfilesByQuota()
        self._held = IdsByKey[str]()  # by namespace: evictions that a disruption budget refused
        self._reservations = ReservationNames()
        self._by_claim = PodsByClaim()
        self._drains = DrainEvents()
        self._promises = Promises()

    def seed(self, view: ManagerView, now: datetime) -> None:
        """Start again when this instance becomes the leader: add the keys of all objects that may have a pending write.

        The events `Scheduled` of recent placements and those of rejected ConfigMaps are derived again. Other events
        that were not recorded are dropped.

        Args:
            now: The time, which tells the recent placements.
        """
        self.queue.add_all(BINDING, (uid for uid, pod in view.state.of_kind(PodState).items() if pod.node))
        self.queue.add_all(EVICTION, view.state.of_kind(EvictionState))
        specs = view.state.of_kind(PodSpecState)
        self.queue.add_all(RESIZE, (uid for uid, spec in specs.items() if spec.resize and not spec.resize.answered_at))
        self.queue.add_all(NODE, view.state.of_kind(NodeSpecState))
        self.nominated = {uid: pod.nominated for uid, pod in view.state.of_kind(PodState).items() if pod.nominated}
        for ref, _ in view.state:
            if ref.kind in STATUS_KINDS:
                self._add_status(ref)
        for uid in view.state.of_kind(PodSpecState):
            if pending_pod_annotations(view, uid):
                self._add_status(AggregateRef("pod", uid))
        self._reservations = ReservationNames(view)
        for name in self._reservations.all():
            self._add_status(reservation_ref(name))
        self.events.clear()
        self.events.extend(_recently_bound(view, now - RECENT))
        self.events.extend(_rejections(view))
        self._held = IdsByKey[str]()
        self._by_claim = PodsByClaim(view)
        self._drains = DrainEvents(view)
        self._profiles = ProfilesByQuota(view)
        self._promises = Promises(view)

    def _add_status(self, ref: AggregateRef) -> None:
        self.queue.add(STATUS, f"{ref.kind}/{ref.id}")

    def note(self, view: ManagerView, folded: Iterable[tuple[AggregateRef, Event]]) -> None:
        """Queue the objects and the Kubernetes events that have to be written because of these folded events."""
        for ref, event in folded:
            self._note(view, ref, event)
            for name in self._reservations.concerned(ref, event):
                self._add_status(reservation_ref(name))
            for token in self._promises.changed_by(view, ref, event):
                if pending_status(view, token) is not None:
                    self.queue.add(NODE, token)

    def _note(self, view: ManagerView, ref: AggregateRef, event: Event) -> None:
        match event:
            case PodPlaced():
                self.queue.add(BINDING, ref.id)
                self._by_claim.placed(ref.id, event.allocation.volume_claims)
            case NodeResourcesTaken():
                self._note_used_reservations(view, event.pods)
            case PodReleased():
                self._by_claim.ended(ref.id)
            case PodReallocated():
                self._add_status(ref)
            case PodSpecAdded() | PodSpecChanged():
                if ref.id in view.state.of_kind(PodState):
                    self.queue.add(BINDING, ref.id)
                    self._note_takeover(view, ref.id)
            case PodBound(node=node):
                self._by_claim.ended(ref.id)
                self._note_takeover(view, ref.id)
                pod = None if event.observed else _pod(view, ref.id)
                if pod is not None:
                    self.events.append(scheduled(ref.id, pod.metadata.namespace, pod.metadata.name, node))
            case PodBindFailed():
                self._by_claim.ended(ref.id)
                pod = _pod(view, ref.id)
                if pod is not None:
                    is_volume = event.reason == FAILED
                    message = event.message if is_volume else f"binding rejected: {event.reason}: {event.message}"
                    self.events.append(failed_scheduling(ref.id, pod.metadata.namespace, pod.metadata.name, message))
            case PodEvictionRequested():
                self.queue.add(EVICTION, ref.id)
                if event.initiator != DESCHEDULER:
                    self.events.append(_eviction_event(ref.id, event))
            case PodResizeRequested():
                self.queue.add(RESIZE, ref.id)
            case PodEvicted() | PodEvictionFailed() | PodEvictionWithdrawn():
                self._held.put(ref.id)
            case PodDeviceUnhealthy():
                self.events.append(device_health(ref.id, event.namespace, event.name, event.devices, event.node))
            case PodNominated(node=node):
                self.nominated[ref.id] = node
                self.denominated.pop(ref.id, None)
            case PodNominationCleared(node=node):
                self.nominated.pop(ref.id, None)
                self.denominated[ref.id] = node
            case MigrationHeld() | MigrationAdvanced() | MigrationEnded():
                self.events.extend(migration_events(ref.id, view.state.get(ref), event))
                self._add_status(ref)
                if isinstance(event, MigrationEnded):
                    self.queue.add_all(EVICTION, view.evictions_of_job(event.job))
            case MassAbnormalityChanged(active=True):
                self.events.append(_mass_abnormal(view, event))
            case ConfigRejected():
                self.events.extend(_config_events(view, event.namespace, event.name, event.reasons))
            case NodeTopologyReported() | DeviceInventoryChanged():
                self.queue.add(NODE, ref.id)
            case QuotaProfileRendered():
                self._add_status(ref)
                self._profiles.rendered(ref, event.quota_namespace, event.quota_name)
            case CustomObjectObserved():
                self._note_object(ref)
                self._note_job(view, ref)
            case CustomObjectDeleted():
                self._note_job(view, ref)
                if plural_of(ref.id) == BUDGETS:
                    self._note_budget(ref)
                elif plural_of(ref.id) == CLAIMS:
                    self._note_claim(ref)
                elif plural_of(ref.id) == QUOTA_PROFILES:
                    self._profiles.deleted(ref.id)
                self._note_root_quota(ref)
            case _:
                if ref.kind in ("nodespec", "nodepolicy"):
                    self.queue.add(NODE, ref.id)
                elif ref.kind in STATUS_KINDS:
                    self._add_status(ref)
                if ref.kind in DRAIN_KINDS.values():
                    self.events.extend(self._drains.changed(view, ref))

    def hold(self, uid: str, event: PodEvictionRequested, why: str) -> None:
        """Record that a disruption budget refuses an eviction; a change of a budget in its namespace retries it.

        The first call for a pod also queues the Kubernetes event `EvictionBlocked`.
        """
        if uid not in self._held.of(event.namespace):
            about = about_pod(uid, event.namespace, event.name)
            self.events.append(KubernetesEvent(about, "EvictionBlocked", why[:1024], "Warning", MANAGER))
        self._held.put(uid, event.namespace)

    def answered(self, uid: str, request: PodEvictionRequested, answer: Ended | Waits) -> None:
        """Queue the Kubernetes event about the API server's answer to an eviction, if the descheduler requested it."""
        event = answer_event(uid, request, answer) if request.initiator == DESCHEDULER else None
        if event is not None:
            self.events.append(event)

    def _note_budget(self, ref: AggregateRef) -> None:
        namespace = namespaced_from_token(ref.id.partition("=")[2])[0]
        self.queue.add_all(EVICTION, self._held.of(namespace))

    def _note_job(self, view: ManagerView, ref: AggregateRef) -> None:
        """Add the keys of the pending evictions of a migration job that changed, because it may not want them now."""
        if plural_of(ref.id) == MIGRATION_JOBS:
            self.queue.add_all(EVICTION, view.evictions_of_job(name_from_token(ref.id.partition("=")[2])))

    def _note_claim(self, ref: AggregateRef) -> None:
        self.queue.add_all(BINDING, self._by_claim.of(*namespaced_from_token(ref.id.partition("=")[2])))

    def _note_used_reservations(self, view: ManagerView, pods: Iterable[PodOnNode]) -> None:
        """Add the keys of the pods that act as the Reservations of these pods."""
        for pod in pods:
            used = pod.allocation.reservation
            if used is not None and used.uid in view.state.of_kind(PodSpecState):
                self._add_status(AggregateRef("pod", used.uid))

    def _note_takeover(self, view: ManagerView, uid: str) -> None:
        """Add the key of a pod if a Reservation or its annotation holds it.

        The scheduler may give the pod to a Reservation while the pod waits for its binding. The annotation of the pod
        then changes.
        """
        placed, pod = view.state.of_kind(PodState).get(uid), _pod(view, uid)
        if placed is None or pod is None:
            return
        if placed.allocation.reservation or keys.RESERVATION_ALLOCATED in pod.metadata.annotations:
            self._add_status(AggregateRef("pod", uid))

    def _note_object(self, ref: AggregateRef) -> None:
        plural, names = plural_of(ref.id), ref.id.partition("=")[2]
        if plural == BUDGETS:
            self._note_budget(ref)
        elif plural == CLAIMS:
            self._note_claim(ref)
        elif plural in (TOPOLOGIES, DEVICES):
            self.queue.add(NODE, names)
        elif (about := ref_of_object(plural, *namespaced_from_token(names))) is not None:
            self._add_status(about)
            self._note_root_quota(ref)

    def _note_root_quota(self, ref: AggregateRef) -> None:
        if plural_of(ref.id) == "elasticquotas":
            for profile in self._profiles.of(*namespaced_from_token(ref.id.partition("=")[2])):
                self._add_status(profile)


def _pod(view: ManagerView, uid: str) -> Pod | None:
    spec = view.state.of_kind(PodSpecState).get(uid)
    return spec.object if spec is not None else None


def _recently_bound(view: ManagerView, since: datetime) -> Iterator[KubernetesEvent]:
    """Yield the event of each pod that the gateway bound to its placement since a time."""
    for uid, spec in view.state.of_kind(PodSpecState).items():
        binding, placed = spec.binding, view.state.of_kind(PodState).get(uid)
        if binding is None or binding.failure or placed is None or binding.node != placed.node:
            continue
        if placed.placed_at and datetime.fromisoformat(placed.placed_at) >= since:
            done = scheduled(uid, placed.namespace, placed.name, placed.node)
            yield done._replace(recalled=True)


def _eviction_event(uid: str, event: PodEvictionRequested) -> KubernetesEvent:
    if event.method == "delete":
        return preempted(uid, event.namespace, event.name, event.message or "Preempted")
    message = event.message or f"evicted by {event.initiator}"
    return KubernetesEvent(
        about_pod(uid, event.namespace, event.name), event.reason, message, "Warning", f"koord-{event.initiator}"
    )


def _mass_abnormal(view: ManagerView, event: MassAbnormalityChanged) -> KubernetesEvent:
    """Return a Kubernetes event about the configuration of node health, where a user can switch health off."""
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


def _config_events(view: ManagerView, namespace: str, name: str, reasons: dict[str, str]) -> list[KubernetesEvent]:
    config = view.config(namespace, name)
    uid = config.object.metadata.uid if config is not None and config.object is not None else ""
    involved = Involved("ConfigMap", "v1", namespace, name, uid)
    reason_of = {section.key: table.parse_error_event for section, table in SECTIONS.items()}
    return [
        KubernetesEvent(involved, reason_of.get(key) or "SLOCfgUnmarshalFailed", reason[:1024], "Warning", MANAGER)
        for key, reason in reasons.items()
    ]


def _rejections(view: ManagerView) -> Iterator[KubernetesEvent]:
    """Yield the events of each ConfigMap whose newest version is not in force."""
    for token, config in view.state.of_kind(ConfigState).items():
        for event in _config_events(view, *namespaced_from_token(token), config.rejected):
            yield event._replace(recalled=True)
