"""Nodes that have refused a pod at Reserve although every filter had admitted them. A node that does so twice with
nothing changed in between is left out for this pod: other nodes may have room. It comes into question again as soon as
it or the pod changes, and after half an hour, in case the plugin refused for a reason that no node shows.

The memory is of this process and not part of the state's hash: a scheduler that begins to lead has none, so a node may
refuse the pod twice more. The explanation of a placement that the memory influenced names `PLUGIN`.

Source: reality 3.9.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from koordcore.events.envelope import name_token

from koord_scheduler.domain.cluster.ledger import Ledgers
from koord_scheduler.domain.framework.outcomes import Candidates
from koord_scheduler.domain.loop.state.known_state import KnownState

PLUGIN: Final = "NodeRefusals"
"""Stands for the name of a plugin in explanations."""
REASON: Final = "they refused the pod twice at Reserve and have not changed since"
REASON_OF_JOB: Final = "refused a pod of the job twice at Reserve and have not changed since"
MOST_REFUSALS: Final = 2
LONGEST_SECONDS: Final = 1800.0
_MOST_PODS: Final = 1_000
_OBJECTS: Final = ("devices", "noderesourcetopologies")


class Refusal(NamedTuple):
    state: object  # What Reserve decides by on the node, see `NodeRefusals._state_of`
    times: int  # Refusals of the node in this state
    at: float  # Time of the last one, in seconds of the service's `Clock`


class NodeRefusals:
    """The refusals at Reserve, by pod and node."""

    def __init__(self, known: KnownState, ledgers: Ledgers) -> None:
        self._known = known
        self._ledgers = ledgers
        self._of: dict[str, dict[str, Refusal]] = {}

    def __len__(self) -> int:
        return len(self._of)

    def refused(self, uid: str, node: str, now: float) -> bool:
        """Record that the node has refused the pod. Return whether the pod is attempted again without an event: the
        second refusal leaves the node out. False if the memory was full, so that not all pods can be attempted again
        and again: the pod takes the place of the first one.
        """
        is_full = uid not in self._of and len(self._of) >= _MOST_PODS
        if is_full:
            del self._of[next(iter(self._of))]
        of_pod = self._of.setdefault(uid, {})
        before, present = of_pod.get(node), self._state_of(uid, node)
        times = before.times + 1 if before is not None and before.state == present else 1
        of_pod[node] = Refusal(present, times, now)
        return not is_full

    def without(self, uid: str, now: float) -> Candidates | None:
        """Return the restriction of the pod to nodes that are not left out; None if no node is."""
        names = self.left_out([uid], now)
        return Candidates(without=names, reason=REASON) if names else None

    def left_out(self, uids: Iterable[str], now: float) -> frozenset[str]:
        """Return the names of the nodes that are left out for at least one of these pods."""
        return frozenset(
            [
                name
                for uid in uids
                for name, refusal in self._of.get(uid, {}).items()
                if refusal.times >= MOST_REFUSALS
                and now < refusal.at + LONGEST_SECONDS
                and refusal.state == self._state_of(uid, name)
            ]
        )

    def forget(self, uid: str) -> None:
        self._of.pop(uid, None)

    def _state_of(self, uid: str, name: str) -> object:
        """Return a value that changes with all that Reserve decides by: what the pod requests, its labels and
        annotations, and of the node its pods, its labels and annotations, and the objects about its hardware. The pod's
        status does not count: it changes with each refusal. Amounts that the node offers are left to the filters.
        """
        known = self._known
        node, row, objects = known.mirror.nodes.get(name), known.nodes.row(name), known.mirror.objects
        if node is None or row is None:
            return None
        hardware = [objects.get(f"{plural}={name_token(name)}") for plural in _OBJECTS]
        requested = known.nodes.requested[:, row].tobytes()
        pod = record.pod if (record := known.pods.get(uid)) is not None else None
        wanted = None if pod is None else (pod.metadata.labels, pod.metadata.annotations, pod.spec)
        return (wanted, node.metadata.labels, node.metadata.annotations, hardware, self._ledgers.seq(name), requested)
