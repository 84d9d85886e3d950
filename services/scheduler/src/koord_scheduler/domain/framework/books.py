"""Books: what one feature knows of the cluster, folded from the log, whatever the profiles are.

A book exists once in a scheduler, also if no profile has the plugin of its feature: pods that count in quotas or hold
devices do so for all. It gets facts from the fold, and its own facts are a section of the snapshot under its name.
`koord_scheduler.domain.plugins.books` makes all of them. Next: `cluster`, which passes the facts on.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from koordcore.events.envelope import AggregateRef, Event
from koordcore.protocol.objects import Node, Pod

from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.columns.node_shape import NodeShape


class Book:
    """The facts of one feature. A subclass implements what it needs; all else does nothing. A book that counts pods on
    nodes joins `NodeAccounting` when it is made.
    """

    name = ""  # that of the feature's plugin; the section of the snapshot
    plurals: frozenset[str] = frozenset()  # the custom objects that it reads
    hardware: frozenset[str] = frozenset()  # those of them that describe the node of the same name
    kinds: frozenset[str] = frozenset()  # kinds of the aggregates whose statuses the feature publishes
    facts_type: Any = None  # the type that `facts` encodes; None: it has no facts of its own

    # --- facts of the API server and of the manager ------------------------------------------------------------------

    def put_object(self, plural: str, document: object) -> Sequence[str]:
        """Add or replace an object (decoded JSON) of one of `plurals`. Return warnings. Raises codec.DecodeError,
        InvalidInput: the object is invalid. The last valid one counts.
        """
        return ()

    def drop_object(self, plural: str, namespace: str, name: str) -> Sequence[str]:
        """Forget a deleted object; `namespace` is "" for cluster-wide kinds. Return warnings."""
        return ()

    def put_node(self, row: int, node: Node, shape: NodeShape) -> None:
        """Record a new or changed node. `shape` has the allocatable after the manager's decisions."""

    def drop_node(self, row: int, name: str) -> None:
        """Forget a deleted node. The columns have it still."""

    def put_pod(self, uid: str, pod: Pod, requests: Mapping[str, int], *, assigned: bool) -> None:
        """`pod` is as the transformers have changed it. `requests`: milli-cores, bytes, whole units; equal
        pods share it. `assigned`: whether it has a node and is not terminated.
        """

    def drop_pod(self, uid: str) -> None:
        """Forget a deleted pod. If it waited at Permit, its node was released before."""

    # --- statuses that the feature publishes -------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Record a status that the log has, whichever instance published it."""

    def takes(self, event: Event) -> bool:
        """Return whether a status must be published: False if it equals the last one. Count it as published."""
        return True

    def stored(self, event: Event) -> None:
        """Record that the log has stored a status of this instance."""

    def unsaid(self, event: Event, *, again: bool) -> None:
        """The log refused the status. `again`: whether it is examined again soon, not only when it changes."""

    def exists(self, ref: AggregateRef) -> bool:
        """Return whether the object of an aggregate of `kinds` exists, so that its last position is kept."""
        return True

    def hashed(self) -> Iterator[tuple[str, object]]:
        """Yield (key, value) of what the book has of the log, for the hash of the state (`replay.state_hash`). It must
        follow from the log alone: not from decisions that the log does not have, the configuration or the time. What
        follows from objects of the API server, or from allocations in the ledgers, is hashed with these. Statuses do
        not place pods.
        """
        return iter(())

    # --- snapshots: what objects, nodes and pods do not tell ---------------------------------------------------------

    def facts(self, under_way: Container[AggregateRef]) -> Iterator[bytes]:
        """Return pieces of JSON, a `facts_type`. Statuses `under_way` are left out: the log may not have them. What
        changes with a placement must be read when the piece is taken, which is after the last pod.
        """
        return iter([b"null"])

    def restore(self, facts: bytes) -> None:
        """Restore what `facts` returned. Objects and nodes are there, pods are not."""

    def many_pods(self) -> AbstractContextManager[None]:
        """Return a context in which many pods are restored. Sums need not be right inside it."""
        return nullcontext()

    def pod_facts(self, uid: str) -> str:
        """Return what an ended pod itself does not tell; "" if there is nothing."""
        return ""

    def restore_pod(self, uid: str, facts: str) -> None:
        """Restore what `pod_facts` returned, after `put_pod`."""

    def restored(self, holders: Callable[[str], Mapping[str, PodInfo]]) -> None:
        """All pods are there, also on their nodes. `holders`: node, also a deleted one -> uid -> pod."""

    def waits_with_others(self, uid: str) -> bool:
        """Return whether the turn of a waiting pod follows from more than facts, for example from its gang's round."""
        return False
