"""Names of the streams, subjects, buckets and keys of one cluster.

Source:
    event-bus spec, 2
"""

import re
from dataclasses import dataclass

from koordcore.events.envelope import AggregateRef

_CLUSTER = re.compile(r"[A-Za-z0-9-]{1,40}")
_TOKEN = re.compile(r"[!-)+\-/-=?-~]+")
"""Printable ASCII without the separators and wildcards of subjects: space, `.`, `*`, `>`."""


class InvalidName(ValueError):
    """A cluster id or an aggregate contains characters that a subject cannot have."""


@dataclass(frozen=True, slots=True)
class BusNames:
    """Names of one cluster.

    Attributes:
        cluster: Letters, digits and `-`, at most 40.

    Raises:
        InvalidName: A cluster id or an aggregate that cannot stand in a subject.
    """

    cluster: str

    def __post_init__(self) -> None:
        if not _CLUSTER.fullmatch(self.cluster):
            raise InvalidName(f"cluster: must be 1 to 40 letters, digits or '-', got {self.cluster!r}")

    @property
    def ev(self) -> str:
        """Stream of facts."""
        return f"KOORD_EV_{self.cluster}"

    @property
    def obs(self) -> str:
        """Stream of observations."""
        return f"KOORD_OBS_{self.cluster}"

    @property
    def cmd(self) -> str:
        """Work queue of requests to act."""
        return f"KOORD_CMD_{self.cluster}"

    @property
    def explanations(self) -> str:
        """Stream of explanations."""
        return f"KOORD_EXPLANATIONS_{self.cluster}"

    @property
    def dlq(self) -> str:
        """Stream of parked work items."""
        return f"KOORD_DLQ_{self.cluster}"

    @property
    def adv(self) -> str:
        """Stream that keeps the server's advisories."""
        return f"KOORD_ADV_{self.cluster}"

    @property
    def desired_bucket(self) -> str:
        """KV bucket of desired node states."""
        return f"koord_desired_{self.cluster}"

    @property
    def desired(self) -> str:
        """Stream behind the KV bucket of desired node states."""
        return f"KV_{self.desired_bucket}"

    @property
    def leader_bucket(self) -> str:
        """KV bucket of leadership terms, for installations without Kubernetes leases."""
        return f"koord_leader_{self.cluster}"

    @property
    def leader(self) -> str:
        """Stream behind the leadership bucket."""
        return f"KV_{self.leader_bucket}"

    @property
    def snapshot_bucket(self) -> str:
        """Object store of fold snapshots."""
        return f"koord_snap_{self.cluster}"

    @property
    def snapshots(self) -> str:
        """Stream behind the object store of snapshots."""
        return f"OBJ_{self.snapshot_bucket}"

    def stream_of(self, class_: str) -> str:
        """Return the stream that holds a class of subjects ("ev", "obs", "explanations")."""
        return {"ev": self.ev, "obs": self.obs, "explanations": self.explanations}[class_]

    @property
    def root(self) -> str:
        """`koord.<cluster>.`, before every subject of the cluster."""
        return f"koord.{self.cluster}."

    def prefix(self, class_: str) -> str:
        """Return `koord.<cluster>.<class>.`, the prefix of all subjects of a class."""
        return f"koord.{self.cluster}.{class_}."

    def subject(self, class_: str, ref: AggregateRef) -> str:
        """Return `koord.<cluster>.<class>.<kind>.<id>`, the subject of an aggregate.

        Raises:
            InvalidName: Kind or id hold a separator, a wildcard, blanks or non-ASCII.
        """
        if not _TOKEN.fullmatch(ref.id) or not _TOKEN.fullmatch(ref.kind):
            raise InvalidName(f"aggregate: kind and id must be subject tokens, got {ref.kind!r}, {ref.id!r}")
        return f"koord.{self.cluster}.{class_}.{ref.kind}.{ref.id}"

    def desired_subject(self, node_token: str) -> str:
        """Return subject of a node's key in the KV bucket."""
        return f"$KV.{self.desired_bucket}.node.{node_token}"

    def dlq_subject(self, consumer: str) -> str:
        """Return where work items of a consumer are parked."""
        return f"koord.{self.cluster}.dlq.{consumer}"
