"""Wake the waiting pods that the events since the last cycle may help.

Source: scheduler-core spec, 2
"""

from typing import Final

import numpy as np

from koord_scheduler.domain.cluster.equivalence_classes import Subject
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import Rows, row_list
from koord_scheduler.domain.engine.frameworks import Frameworks
from koord_scheduler.domain.framework.extension_points import BEFORE_FILTER, BEFORE_PRE_FILTER
from koord_scheduler.domain.framework.fact_points import ClusterEvent, EventKind
from koord_scheduler.domain.loop.queue.nominator import Nominator
from koord_scheduler.domain.loop.queue.scheduling_queue import SchedulingQueue
from koord_scheduler.domain.plugins.books import Books

_NO_ROWS: Final = np.zeros(0, np.intp)


class QueueingHints:
    """Collects changes that may make waiting pods schedulable, and wakes these pods before the next cycle."""

    def __init__(
        self,
        frameworks: Frameworks,
        books: Books,
        queue: SchedulingQueue,
        nominator: Nominator,
        pods: dict[str, PodRecord],
    ) -> None:
        # Positions of the nodes on which something has changed that may help. `wake` empties it.
        self.helped: dict[int, None] = {}
        self.trigger = ""  # Id of the last event that may help
        self._versions = [0] * len(frameworks.hinting)
        self.population_moves_seen = -1  # Number of pods that came or went up to the last `wake`
        self._had_nodes = False  # Whether the cluster had nodes at the last `wake`
        self._frameworks = frameworks
        self._cluster = frameworks.cluster
        self._volumes = books.volumes
        self._gangs = books.gangs
        self._nodes = frameworks.cluster.nodes
        self._queue = queue
        self._nominator = nominator
        self._pods = pods

    def room_appeared(self, node: str, trigger: str) -> None:
        """A change of the node may make waiting pods schedulable on it. `trigger`, here and below: id of the causing
        event.
        """
        # Also for a deleted node: without a new cause, the next placement of a pod that was there gets the same id.
        self.trigger = trigger
        row = self._nodes.row(node)
        if row is not None:
            self.helped[row] = None

    def room_appeared_anywhere(self, trigger: str) -> None:
        self.helped.update(dict.fromkeys(row_list(np.flatnonzero(self._nodes.alive))))
        self.trigger = trigger

    def eviction_failed(self, victim: PodRecord, trigger: str) -> None:
        """Wake the pods that are nominated to the node of a victim that stays: they must find other victims."""
        self._wake_nominated(victim.node or victim.bound_node, trigger)

    def wake_activated(self, trigger: str) -> None:
        """Move the pods of `Cluster.activated` to the active queue."""
        self._queue.activate(self._cluster.take_activated(), trigger)

    def wake(self) -> int:
        """Move waiting pods that the changes since the last call may help to the active or back-off queue. Return their
        number, without nominated and activated pods.
        """
        self._cluster.settle()
        self.wake_activated(self.trigger)
        self._queue.activate(self._gangs.others_to_ask(), self.trigger)
        woken = self._wake_by_own_events()
        woken += self._wake_cross_node()
        for node in self._nominator.left:
            self.room_appeared(node, self.trigger)
        self._nominator.left.clear()
        had_nodes, self._had_nodes = self._had_nodes, bool(self._nodes.alive.any())
        if not self.helped:
            return woken
        if not had_nodes:
            # Each pod was told that there are no nodes. That is not true any more, also of those that find no room.
            woken += self._queue.wake_all(self.trigger)
        rows = np.array(sorted(self.helped), np.intp)
        self.helped.clear()
        names = self._nodes.names
        for row in row_list(rows):
            self._wake_nominated(names[row], self.trigger)

        event = ClusterEvent(EventKind.NODE, rows)
        if self._frameworks.wakes_on_nodes:
            woken += self._wake_refused(event, None)

        def fits(subject: Subject, rows: Rows) -> bool:
            return self._may_suit(subject, event)

        return woken + self._queue.wake(rows, fits, self.trigger)

    def _wake_nominated(self, node: str, trigger: str) -> None:
        for uid in self._nominator.on(node):
            if self._queue.get(uid) is not None:
                self._queue.wake_pod(uid, trigger)

    def _may_suit(self, subject: Subject, event: ClusterEvent) -> bool:
        """Return whether an attempt of the first waiting pod of a kind might find one of the nodes feasible."""
        framework = self._frameworks.profile_of(subject)
        plugins = framework.profile.concerning(subject.pod_class.concerned)
        if plugins.sees_otherwise:
            uid = self._queue.first_waiting(subject)
            for plugin in (*plugins.at(BEFORE_PRE_FILTER), *plugins.at(BEFORE_FILTER)):
                if uid is not None and framework.is_worth(plugin.name, event, self._pods[uid]):
                    return True
        return len(framework.engine.passing(subject, event.rows)) > 0

    def _wake_refused(self, event: ClusterEvent, by: set[int] | None) -> int:
        """Wake the first pod of each group that a plugin rejected before any node, if the event may help it. `by`: ids
        of the plugins whose rejected pods are considered; None: all.
        """
        woken = 0
        for block, uid in self._queue.blocked():
            pod = self._pods[uid]
            framework = self._frameworks.framework_of(pod)
            if by is not None and id(framework.hints.get(block.plugin)) not in by:
                continue
            if framework.is_worth(block.plugin, event, pod):
                self._queue.wake_pod(uid, self.trigger or pod.trigger)
                woken += 1
        return woken

    def _wake_by_own_events(self) -> int:
        """Wake pods that plugins rejected because of their own state, such as quotas, if that state has changed."""
        moved: set[int] = set()
        for index, plugin in enumerate(self._frameworks.hinting):
            version = plugin.hint_version()
            if version != self._versions[index]:
                self._versions[index] = version
                moved.add(id(plugin))
        return self._wake_refused(ClusterEvent(EventKind.OWN, _NO_ROWS), moved) if moved else 0

    def _wake_cross_node(self) -> int:
        """Wake pods whose constraints depend on pods elsewhere or on storage, if one of these has changed."""
        volumes, moves = self._volumes, self._cluster.population.moves
        helped = volumes.take_helped()
        has_moved = self.population_moves_seen != moves
        if not has_moved and not helped:
            return 0
        self.population_moves_seen = moves
        woken = 0
        for subject in self._queue.waiting_subjects():
            claims = subject.claims
            if not has_moved and (claims is None or not helped.may_help(volumes.traits(claims))):
                continue
            engine = self._frameworks.engine_of(subject)
            if engine.cross_node_filters(subject).filters and engine.has_room(subject):
                self._queue.wake_first(subject, self.trigger)
                woken += 1
        return woken
