"""Lives of pods as rows that can be queried as of any position.

A pod's life is a chain of episodes. One episode is one row, valid from `from_seq` until before `to_seq` (None: still
valid). Inside an episode each transition happens at most once. So the positions of the transitions determine the phase
at any position P:

    terminating   deleted_seq <= P          the object is deleted, the node is not released yet
    running       started_seq <= P < stopped_seq
    placed        placed_seq <= P
    pending       otherwise

Other changes (released, listed fields changed, restarted) end the episode and begin the next. So a pod that is
submitted, placed and started needs one row, and a past list of pods is a simple filter.
"""

from enum import StrEnum
from typing import Any

import msgspec
from koordcore.events.envelope import StoredEvent, name_from_token
from koordcore.events.pod import PodPlaced, PodReallocated
from koordcore.protocol.annotations.gang import gang_name
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.priority import priority_class
from koordcore.protocol.qos import qos
from koordcore.values.invalid import InvalidInput

LONGEST_GANG = 512
"""Length after which the name of a gang is cut, because an index cannot store it. Annotations may be very long."""


class Phase(StrEnum):
    PENDING = "pending"
    PLACED = "placed"
    RUNNING = "running"
    TERMINATING = "terminating"
    __hash__ = str.__hash__  # that of enums is a Python function


class PodFacts(msgspec.Struct, frozen=True):
    """Fields of a pod object that lists show: name, QoS class, priority class, requests, gang.

    Empty if the object is invalid. `gang` is the name of its gang in its namespace, without what is longer than
    `LONGEST_GANG`; "" if it has none.
    """

    namespace: str
    name: str
    qos: str
    priority_class: str
    requests: dict[str, int]
    gang: str = ""


class Episode(msgspec.Struct, kw_only=True):
    """A part of a pod's life: one row of the table `pods`. Inside an episode, each transition happens at most once.

    The fields `..._seq` are the positions of the facts that submitted, placed, started, stopped or deleted the pod;
    None: has not happened. The fields `..._at` are their RFC 3339 times.
    """

    uid: str
    from_seq: int  # Position at which the row begins to apply
    to_seq: int | None = None  # Position from which the next row applies; None: this is the newest row
    facts: PodFacts  # Fields of the pod object that lists show
    submitted_seq: int
    submitted_at: str
    node: str = ""  # Node of the placement; "" without one
    placed_seq: int | None = None
    placed_at: str = ""
    started_seq: int | None = None
    started_at: str = ""
    stopped_seq: int | None = None
    deleted_seq: int | None = None
    stored: bool = False  # Whether the table already has this row (its key is uid, from_seq)

    def phase(self) -> Phase:
        """The phase after the last folded event."""
        if self.deleted_seq is not None:
            return Phase.TERMINATING
        if self.placed_seq is None:
            return Phase.PENDING
        return Phase.RUNNING if self.started_seq is not None and self.stopped_seq is None else Phase.PLACED


def pod_facts(pod: Pod) -> PodFacts:
    """If a quantity or label is invalid, the pod has no requests, no QoS class and no priority class here."""
    try:
        requests: dict[str, int] = dict(pod_requests(pod))
        qos_class, priority = str(qos(pod)), str(priority_class(pod))
    except InvalidInput:
        requests, qos_class, priority = {}, "", ""
    gang = gang_name(pod.metadata.labels, pod.metadata.annotations)[:LONGEST_GANG]
    return PodFacts(pod.metadata.namespace, pod.metadata.name, qos_class, priority, requests, gang)


class PodBook:
    """The newest episode (row of the table `pods`) of every pod that lives, by uid. One task uses it."""

    def __init__(self) -> None:
        self.living: dict[str, Episode] = {}
        self.counts: dict[Phase, int] = dict.fromkeys(Phase, 0)
        self._touched: dict[tuple[str, int], Episode] = {}
        self._closed: list[Episode] = []

    def load(self, episode: Episode) -> None:
        self.living[episode.uid] = episode
        self.counts[episode.phase()] += 1

    def take_touched(self) -> list[Episode]:
        """Return the rows that changed, in the order of their first change. Rows that are not `stored` are new."""
        touched = list(self._touched.values())
        self._touched.clear()
        self._closed.clear()
        return touched

    def take_closed(self) -> list[Episode]:
        """Return the rows that ended since the last call. They do not change any more."""
        closed, self._closed = self._closed, []
        for episode in closed:
            del self._touched[episode.uid, episode.from_seq]
            episode.stored = True
        return closed

    def is_placed(self, uid: str) -> bool:
        """Whether a pod has a node and its object is not deleted."""
        current = self.living.get(uid)
        return current is not None and current.placed_seq is not None and current.deleted_seq is None

    def submitted(self, uid: str, pod: Pod, at: StoredEvent) -> None:
        """A pod object was added or changed. If listed fields changed, a new episode begins.

        While the pod has a node, its requests are those that the log gave it there. An object that was deleted before,
        and whose node is not released yet, counts as submitted again.
        """
        facts = pod_facts(pod)
        current = self.living.get(uid)
        if current is None:
            self._open(
                Episode(uid=uid, from_seq=at.seq, facts=facts, submitted_seq=at.seq, submitted_at=at.occurred_at)
            )
        elif current.deleted_seq is not None:
            self._succeed(current, at, facts=facts, deleted_seq=None, submitted_seq=at.seq, submitted_at=at.occurred_at)
        else:
            if current.placed_seq is not None:  # a resize is a fact of its own (`reallocated`)
                facts = msgspec.structs.replace(facts, requests=current.facts.requests)
            if facts != current.facts:
                self._succeed(current, at, facts=facts)

    def deleted(self, uid: str, at: StoredEvent) -> None:
        """With a node it is terminating until it is released; without one, its life ends. No-op for an unknown pod."""
        current = self.living.get(uid)
        if current is None or current.deleted_seq is not None:
            return
        if current.placed_seq is None:
            self._close(current, at)
        else:
            self._change(current, deleted_seq=at.seq)

    def placed(self, uid: str, event: PodPlaced, at: StoredEvent, *, runs_there: bool) -> None:
        """`runs_there`: the agent of that node has already reported the pod as running."""
        current = self.living.get(uid)
        placement: dict[str, Any] = {
            "node": event.node,
            "placed_seq": at.seq,
            "placed_at": at.occurred_at,
            "started_seq": at.seq if runs_there else None,
            "started_at": at.occurred_at if runs_there else "",
            "stopped_seq": None,
        }
        if current is None:  # placed after its object was deleted: listed until it is released
            facts = PodFacts(event.namespace, event.name, "", "", event.requests)
            self._open(
                Episode(
                    uid=uid,
                    from_seq=at.seq,
                    facts=facts,
                    submitted_seq=at.seq,
                    submitted_at=event.queued_at,
                    deleted_seq=at.seq,
                    **placement,
                )
            )
            return
        facts = msgspec.structs.replace(current.facts, requests=event.requests)
        if current.placed_seq is None and facts == current.facts:
            self._change(current, **placement)
        else:
            self._succeed(current, at, facts=facts, **placement)

    def reallocated(self, uid: str, event: PodReallocated, at: StoredEvent) -> None:
        """A new episode begins if the pod has a node and holds other amounts there than before."""
        current = self.living.get(uid)
        if current is not None and current.placed_seq is not None and current.facts.requests != event.requests:
            self._succeed(current, at, facts=msgspec.structs.replace(current.facts, requests=event.requests))

    def released(self, uid: str, at: StoredEvent) -> None:
        """No-op without a node. If the object was deleted, the life ends. Otherwise the pod is pending again."""
        current = self.living.get(uid)
        if current is None or current.placed_seq is None:
            return
        if current.deleted_seq is not None:
            self._close(current, at)
            return
        self._succeed(
            current,
            at,
            node="",
            placed_seq=None,
            placed_at="",
            started_seq=None,
            started_at="",
            stopped_seq=None,
        )

    def started(self, uid: str, node_token: str, at: StoredEvent) -> None:
        """No-op if the pod is not placed on this node, or runs already."""
        current = self._on_node(uid, node_token)
        if current is None or (current.started_seq is not None and current.stopped_seq is None):
            return
        if current.started_seq is None:
            self._change(current, started_seq=at.seq, started_at=at.occurred_at)
        else:
            self._succeed(current, at, started_seq=at.seq, started_at=at.occurred_at, stopped_seq=None)

    def stopped(self, uid: str, node_token: str, at: StoredEvent) -> None:
        """No-op if the pod is not placed on this node, or does not run."""
        current = self._on_node(uid, node_token)
        if current is not None and current.started_seq is not None and current.stopped_seq is None:
            self._change(current, stopped_seq=at.seq)

    def _on_node(self, uid: str, node_token: str) -> Episode | None:
        current = self.living.get(uid)
        if current is None or current.placed_seq is None or current.node != name_from_token(node_token):
            return None
        return current

    def _open(self, episode: Episode) -> None:
        self.living[episode.uid] = episode
        self.counts[episode.phase()] += 1
        self._touched[episode.uid, episode.from_seq] = episode

    def _change(self, episode: Episode, **fields: object) -> None:
        self.counts[episode.phase()] -= 1
        for name, value in fields.items():
            setattr(episode, name, value)
        self.counts[episode.phase()] += 1
        self._touched[episode.uid, episode.from_seq] = episode

    def _close(self, episode: Episode, at: StoredEvent) -> None:
        self.counts[episode.phase()] -= 1
        episode.to_seq = at.seq
        del self.living[episode.uid]
        self._touched[episode.uid, episode.from_seq] = episode
        self._closed.append(episode)

    def _succeed(self, episode: Episode, at: StoredEvent, **fields: object) -> None:
        self._close(episode, at)
        self._open(msgspec.structs.replace(episode, from_seq=at.seq, to_seq=None, stored=False, **fields))
