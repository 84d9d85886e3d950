"""Pods that are nominated to a node until their victims are gone.

Source: scheduler-core spec, 1.3 and 6
"""

import msgspec
from koordcore.events.envelope import AggregateRef
from koordcore.events.scheduling.pod import PodNominated, PodNominationCleared
from koordcore.protocol.objects import Pod

from koord_scheduler.domain.commit.status_writes import StatusWrite, StatusWrites
from koord_scheduler.domain.pods.deleted import DeletedPods
from koord_scheduler.domain.pods.info import PodInfo
from koord_scheduler.domain.pods.record import PodRecord, is_alive


class Nominator:
    """Node and priority of each nominated pod, and the evictions that are under way.

    Attributes:
        evictions: Reason of each eviction that is requested and not over, by uid of the pod.
    """

    def __init__(self, pods: dict[str, PodRecord], deleted: DeletedPods, writes: StatusWrites) -> None:
        self.evictions: dict[str, str] = {}
        self._pods = pods
        self._deleted = deleted
        self._writes = writes
        self._of: dict[str, tuple[str, int]] = {}
        self._on: dict[str, dict[str, int]] = {}

    def __len__(self) -> int:
        return len(self._of)

    def nominate(self, pod: PodRecord, node: str) -> None:
        """Nominate the pod to this node, and to no other."""
        # Another scheduler's counts for pods of lower priority only: two that wait for each other would wait for ever.
        self.put(pod.uid, node, pod.priority - (pod.pod is not None and pod.framework is None))

    def put(self, uid: str, node: str, priority: int) -> None:
        """Nominate the pod to this node with this priority, and to no other node."""
        self.drop(uid)
        self._of[uid] = (node, priority)
        self._on.setdefault(node, {})[uid] = priority

    def drop(self, uid: str) -> None:
        """Forget the nomination of the pod. No-op if it is not nominated."""
        known = self._of.pop(uid, None)
        if known is not None:
            on_node = self._on[known[0]]
            del on_node[uid]
            if not on_node:
                del self._on[known[0]]

    def clear(self, pod: PodRecord, reason: str) -> None:
        """End the nomination of a waiting pod and publish it. No-op if it is not nominated."""
        node = self.node_of(pod.uid)
        if node:
            self.drop(pod.uid)
            self._publish_cleared(pod.uid, pod.namespace, pod.name, node, reason, pod.trigger)

    def pod_deleted(self, pod: PodRecord, trigger: str) -> None:
        """Publish the end of a deleted pod's nomination. No-op if it is not nominated."""
        node = self.node_of(pod.uid)
        if node:
            self._deleted.note(pod.uid, pod.seq)
            self._publish_cleared(pod.uid, pod.namespace, pod.name, node, "deleted", trigger)

    def stored_after_deletion(self, uid: str, event: PodNominated, seq: int, trigger: str) -> None:
        """End a nomination that the log stored after its pod was deleted."""
        self._deleted.note(uid, seq)
        self._publish_cleared(uid, event.namespace, event.name, event.node, "deleted", trigger)

    def follow_other_scheduler(self, pod: PodRecord, spec: Pod) -> None:
        """Adopt the nomination that another scheduler wrote into the status of its pod."""
        node = spec.status.nominated_node_name
        if node and not spec.spec.node_name and is_alive(spec):
            self.nominate(pod, node)
        else:
            self.drop(pod.uid)

    def node_of(self, uid: str) -> str:
        """Return the node to which the pod is nominated, "" if none."""
        known = self._of.get(uid)
        return known[0] if known is not None else ""

    def on(self, node: str) -> tuple[str, ...]:
        """Return the pods nominated to the node."""
        return tuple(self._on.get(node, ()))

    def nodes(self) -> tuple[str, ...]:
        """Return the nodes to which any pod is nominated."""
        return tuple(self._on)

    def rivals(self, node: str, uid: str, priority: int) -> list[str]:
        """Return the other pods nominated to the node whose priority is at least `priority`."""
        return [other for other, rank in self._on.get(node, {}).items() if other != uid and rank >= priority]

    def rivals_on(self, node: str, pod: PodRecord) -> list[PodInfo]:
        """Return the pods nominated to a node that this pod may not preempt, as they would count there.

        A pod that has been placed meanwhile is absent, because it counts where it is assumed.
        """
        return [
            msgspec.structs.replace(other.pod_info(), is_guest=True)
            for uid in self.rivals(node, pod.uid, pod.priority)
            if (other := self._pods.get(uid)) is not None and other.subject is not None and not other.work_node
        ]

    def outranked(self, node: str, uid: str, priority: int) -> list[str]:
        """Return the other pods nominated to the node whose priority is less than `priority`."""
        return [other for other, rank in self._on.get(node, {}).items() if other != uid and rank < priority]

    def items(self) -> list[tuple[str, str, int]]:
        """Return (uid, node, priority) of every nominated pod."""
        return [(uid, node, priority) for uid, (node, priority) in self._of.items()]

    def _publish_cleared(self, uid: str, namespace: str, name: str, node: str, reason: str, trigger: str) -> None:
        cleared = PodNominationCleared(namespace=namespace, name=name, node=node, reason=reason)
        self._writes.put(StatusWrite(facts=((AggregateRef("pod", uid), cleared),), trigger=trigger))
