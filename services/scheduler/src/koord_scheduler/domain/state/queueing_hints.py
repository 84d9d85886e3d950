"""Waiting pods that the events since the last cycle may help.

Source: scheduler-core spec, 2
"""

from typing import Final

import numpy as np

from koord_scheduler.domain.columns.node_columns import Rows, row_list
from koord_scheduler.domain.pods.equivalence_classes import Subject
from koord_scheduler.domain.pods.record import PodRecord
from koord_scheduler.domain.queue.nominator import Nominator
from koord_scheduler.domain.queue.scheduling_queue import SchedulingQueue
from koord_scheduler.domain.runtime.frameworks import Frameworks

_WOKEN_OTHERWISE: Final = frozenset({"ElasticQuota", "Coscheduling", "DynamicResources", "SchedulingHint"})
"""Built-in plugins whose refusals nothing on a node changes: quotas and gangs call their pods, the others' stand."""


class QueueingHints:
    """What has happened that may help waiting pods.

    Attributes:
        helped: Rows of nodes on which something may help a waiting pod. `wake` empties it.
        trigger: Id of the last event that may help.
        quota_moves_seen: How far `wake` has followed the changes of quotas.
        population_moves_seen: How far `wake` has followed pods and volumes that come and go.
    """

    def __init__(
        self, frameworks: Frameworks, queue: SchedulingQueue, nominator: Nominator, pods: dict[str, PodRecord]
    ) -> None:
        self.helped: dict[int, None] = {}
        self.trigger = ""
        self.quota_moves_seen = 0
        self.population_moves_seen = -1
        self._frameworks = frameworks
        self._cluster = frameworks.cluster
        self._nodes = frameworks.cluster.nodes
        self._queue = queue
        self._nominator = nominator
        self._pods = pods

    def room_appeared(self, node: str, trigger: str) -> None:
        """Note that something on the node may help a waiting pod.

        Args:
            node: Name of the node.
            trigger: Id of the event behind it.
        """
        row = self._nodes.row(node)
        if row is not None:
            self.helped[row] = None
            self.trigger = trigger

    def room_appeared_anywhere(self, trigger: str) -> None:
        """Note that something may help a waiting pod on any node.

        Args:
            trigger: Id of the event behind it.
        """
        self.helped.update(dict.fromkeys(row_list(np.flatnonzero(self._nodes.alive))))
        self.trigger = trigger

    def wake_activated(self, trigger: str) -> None:
        """Activate the pods that facts have made worth an attempt (`Cluster.activated`)."""
        self._queue.activate(self._cluster.take_activated(), trigger)

    def wake(self) -> int:
        """Wake the waiting pods that the events since the last call may help, and return their number."""
        self._cluster.images.settle()
        self.wake_activated(self.trigger)
        woken = self._wake_blocked()
        woken += self._wake_cross_node()
        if not self.helped:
            return woken
        rows = np.array(sorted(self.helped), np.intp)
        self.helped.clear()
        names = self._nodes.names
        nominated = [uid for row in row_list(rows) for uid in self._nominator.on(names[row])]
        for uid in nominated:
            if self._queue.get(uid) is not None:
                self._queue.wake_pod(uid, self.trigger)

        refused = self._queue.refused_by_others(_WOKEN_OTHERWISE) if self._frameworks.packages else []
        for uid in refused:
            self._queue.wake_pod(uid, self.trigger)

        def fits(subject: Subject, rows: Rows) -> bool:
            return self._frameworks.engine_of(subject).may_suit(subject, rows)

        return woken + len(refused) + self._queue.wake(rows, fits, self.trigger)

    def _wake_blocked(self) -> int:
        """Wake the first pod of each quota that would be admitted now."""
        if self.quota_moves_seen == self._cluster.quota_moves:
            return 0
        self.quota_moves_seen = self._cluster.quota_moves
        woken = 0
        for _, uid in self._queue.blocked("ElasticQuota"):
            known = self._cluster.quotas.pods.get(uid)
            if known is None or self._cluster.quotas.admit(known.facts).admitted:
                self._queue.wake_pod(uid, self.trigger or self._pods[uid].trigger)
                woken += 1
        return woken

    def _wake_cross_node(self) -> int:
        """Wake pods whose constraints look at pods elsewhere, if any pod or volume came or went."""
        moves = self._cluster.population.moves + self._cluster.volumes.changes
        if self.population_moves_seen == moves:
            return 0
        self.population_moves_seen = moves
        woken = 0
        for subject in self._queue.waiting_subjects():
            engine = self._frameworks.engine_of(subject)
            if engine.judges(subject).filters and engine.has_room(subject):
                self._queue.wake_first(subject, self.trigger)
                woken += 1
        return woken
