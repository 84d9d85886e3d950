"""Pods that preemption has nominated to a node: other pods leave room for them until they are placed.

Source: scheduler-core spec, 1.3 and 6
"""

from typing import Final

import msgspec
from koordcore.events.envelope import AggregateRef
from koordcore.events.pod import PodNominated, PodNominationCleared
from koordcore.protocol.objects import Pod

from koord_scheduler.domain.cluster.forgetting import DeletedPods
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.record import PodRecord, is_alive
from koord_scheduler.domain.loop.commit.status_writes import StatusWrite, StatusWrites

PREEMPTED: Final = "Preempted"
"""Reason of evictions that a preemption requests."""
OUTRANKED: Final = "outranked"
"""Reason of a `PodNominationCleared`: a pod of higher priority took the node. The pod is attempted again at once."""
FIRST_PAUSE_SECONDS: Final = 10.0
"""Pause between two requests to evict a pod whose eviction has failed twice. It doubles with every further failure."""
LONGEST_PAUSE_SECONDS: Final = 300.0
"""Longest such pause: as long as the longest wait of an unschedulable pod."""
_NEVER: Final = (0.0, 0)


class Nominator:
    """The node that preemption has promised to each nominated pod, and the evictions that are under way."""

    def __init__(self, pods: dict[str, PodRecord], deleted: DeletedPods, writes: StatusWrites) -> None:
        # Uid of a pod -> reason of its eviction, from the request until it has failed or the pod is gone.
        self.evictions: dict[str, str] = {}
        self.unsaid: set[str] = set()  # Uids of the pods among them whose request is not in the log yet
        # Names of nodes to which a pod is no longer nominated, so that others may fit. The reader empties it.
        self.left: dict[str, None] = {}
        self._pods = pods
        self._deleted = deleted
        self._writes = writes
        self._asked: dict[str, tuple[float, int]] = {}
        self._of: dict[str, tuple[str, int]] = {}
        self._on: dict[str, dict[str, int]] = {}

    def __len__(self) -> int:
        return len(self._of)

    def evict(self, uid: str, reason: str, now: float) -> None:
        """Record a request to evict the pod that the log has not stored yet. The caller publishes it. `now`: seconds of
        the service's `Clock`.
        """
        self.evictions[uid] = reason
        self.unsaid.add(uid)
        self._asked[uid] = (now, self._asked.get(uid, _NEVER)[1])

    def eviction_failed(self, uid: str) -> None:
        """Record that the eviction of the pod was refused, so that it is requested again only after a pause."""
        self.not_evicted(uid)
        if uid in self._asked:
            asked_at, failures = self._asked[uid]
            self._asked[uid] = (asked_at, failures + 1)

    def may_be_evicted(self, uid: str, now: float) -> bool:
        """Return False while a request to evict the pod would come too soon after requests that have failed. `now`:
        seconds of the service's `Clock`.
        """
        return now >= self.spared_until(uid)

    def spared_until(self, uid: str) -> float:
        """Return the time from which a request to evict the pod may follow those that have failed; 0.0: any time. One
        failure causes no pause. Only requests of this process count, so a scheduler that begins to lead may ask at
        once. Returns Seconds of the service's `Clock`.
        """
        asked_at, failures = self._asked.get(uid, _NEVER)
        if failures < 2:
            return 0.0
        return asked_at + min(FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 2, 60), LONGEST_PAUSE_SECONDS)

    def forget_evictions(self, uid: str) -> None:
        """Forget all requests to evict the pod, because it is gone."""
        self.not_evicted(uid)
        self._asked.pop(uid, None)

    def not_evicted(self, uid: str) -> None:
        """Record that no eviction of the pod is under way. No-op if none was."""
        self.evictions.pop(uid, None)
        self.unsaid.discard(uid)

    def nominate(self, pod: PodRecord, node: str) -> None:
        """Nominate the pod to this node with its priority. An earlier nomination of the pod is replaced. A pod of
        another scheduler ranks below our pods of the same priority.
        """
        # If two pods of equal priority of two schedulers left room for each other, neither would ever be placed.
        self.put(pod.uid, node, pod.priority - (pod.pod is not None and pod.framework is None))

    def put(self, uid: str, node: str, priority: int) -> None:
        """Nominate the pod to this node with this priority. An earlier nomination of the pod is replaced. Nothing is
        published to the log; `clear` and `pod_deleted` publish the end of a nomination.
        """
        if self.node_of(uid) != node:
            self.drop(uid)
        self._of[uid] = (node, priority)
        self._on.setdefault(node, {})[uid] = priority

    def drop(self, uid: str) -> None:
        """Without publishing this. No-op if the pod is not nominated."""
        known = self._of.pop(uid, None)
        if known is not None:
            on_node = self._on[known[0]]
            del on_node[uid]
            if not on_node:
                del self._on[known[0]]
            self.left[known[0]] = None

    def clear(self, pod: PodRecord, reason: str) -> None:
        """End the nomination of a pod and publish this to the log. No-op if the pod is not nominated. `reason`: why its
        nomination ends, as in `PodNominationCleared`.
        """
        node = self.node_of(pod.uid)
        if node:
            self.drop(pod.uid)
            pod.left_node = node
            self._publish_cleared(pod.uid, pod.namespace, pod.name, node, reason, pod.trigger)

    def pod_deleted(self, pod: PodRecord, trigger: str) -> None:
        """Publish to the log that a deleted pod is no longer nominated. No-op if it is not nominated. The nomination
        itself stays until the published event is folded.
        """
        node = self.node_of(pod.uid)
        if node:
            self._deleted.note(pod.uid, pod.seq)
            self._publish_cleared(pod.uid, pod.namespace, pod.name, node, "deleted", trigger)

    def stored_after_deletion(self, uid: str, event: PodNominated, seq: int, trigger: str) -> None:
        """Publish the end of a nomination that the log stored after its pod had been deleted. `trigger`: id of the
        event that caused it.
        """
        self._deleted.note(uid, seq)
        self._publish_cleared(uid, event.namespace, event.name, event.node, "deleted", trigger)

    def follow_other_scheduler(self, pod: PodRecord, spec: Pod) -> None:
        """Copy the nominated node from the status of another scheduler's pod, so that our pods leave room for it. If
        the status names no node, or the pod has a node or is finished, its nomination is forgotten.
        """
        node = spec.status.nominated_node_name
        if node and not spec.spec.node_name and is_alive(spec):
            self.nominate(pod, node)
        else:
            self.drop(pod.uid)

    def node_of(self, uid: str) -> str:
        """ "" if it is not nominated."""
        known = self._of.get(uid)
        return known[0] if known is not None else ""

    def wished(self, pod: PodRecord) -> str:
        """Return the node that the pod is to try first: that of its nomination, else `status.nominatedNodeName`, which
        another component wrote, such as an autoscaler or the scheduler before this one. "" if there is none. The node
        of a nomination that has ended does not count while the status still names it.
        Source: scheduler-core spec, 1.1; Kubernetes KEP-5278
        """
        told = pod.pod.status.nominated_node_name if pod.pod is not None else ""
        return self.node_of(pod.uid) or (told if told != pod.left_node else "")

    def on(self, node: str) -> tuple[str, ...]:
        return tuple(self._on.get(node, ()))

    def nodes(self) -> tuple[str, ...]:
        return tuple(self._on)

    def rivals(self, node: str, uid: str, priority: int) -> list[str]:
        """Uids of other pods that are nominated to the node with at least this priority."""
        return [other for other, rank in self._on.get(node, {}).items() if other != uid and rank >= priority]

    def rivals_on(self, node: str, pod: PodRecord) -> list[PodInfo]:
        """The pods nominated to a node for which this pod must leave room, as they would count there. These are pods of
        equal or higher priority. A pod that is assumed on a node meanwhile is left out, because it counts there.
        """
        return [
            msgspec.structs.replace(other.pod_info(), is_guest=True)
            for uid in self.rivals(node, pod.uid, pod.priority)
            if (other := self._pods.get(uid)) is not None and other.subject is not None and not other.work_node
        ]

    def outranked(self, node: str, uid: str, priority: int) -> list[str]:
        """Uids of other pods that are nominated to the node with a priority below `priority`."""
        return [other for other, rank in self._on.get(node, {}).items() if other != uid and rank < priority]

    def items(self) -> list[tuple[str, str, int]]:
        """(Uid, node, priority)."""
        return [(uid, node, priority) for uid, (node, priority) in self._of.items()]

    def _publish_cleared(self, uid: str, namespace: str, name: str, node: str, reason: str, trigger: str) -> None:
        cleared = PodNominationCleared(namespace=namespace, name=name, node=node, reason=reason)
        self._writes.put(StatusWrite(facts=((AggregateRef("pod", uid), cleared),), trigger=trigger))
