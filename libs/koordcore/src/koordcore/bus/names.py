"""Names of the streams, subjects, buckets and keys of one cluster.

Source: event-bus spec, 2.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from koordcore.events.envelope import AggregateRef

_CLUSTER = re.compile(r"[A-Za-z0-9-]{1,40}")
_TOKEN = re.compile(r"[!-)+\-/-=?-~]+")  # Pattern of a subject token: printable ASCII without space, `.`, `*` and `>`


# Service -> the folds whose snapshots it saves. A reader takes a snapshot of a fold from its service only.
SAVED_FOLDS: Final[Mapping[str, tuple[str, ...]]] = {
    "manager": ("manager", "recommender"),
    "scheduler": ("scheduler",),
    "descheduler": ("descheduler",),
}


# Writers of audit records. Each has one subject; `koord` is the command.
AUDIT_WRITERS: Final = ("manager", "scheduler", "descheduler", "projector", "koord")


class InvalidName(ValueError):
    """A cluster id or the id of an aggregate contains characters that a NATS subject cannot have."""


@dataclass(frozen=True, slots=True)
class BusNames:
    """Names of the streams, subjects and buckets of one cluster.

    Raises:
        InvalidName: The cluster id contains other characters.
    """

    cluster: str  # Id of the cluster: letters, digits and `-`, at most 40

    def __post_init__(self) -> None:
        if not _CLUSTER.fullmatch(self.cluster):
            raise InvalidName(f"cluster: must be 1 to 40 letters, digits or '-', got {self.cluster!r}")

    @property
    def ev(self) -> str:
        return f"KOORD_EV_{self.cluster}"

    @property
    def obs(self) -> str:
        return f"KOORD_OBS_{self.cluster}"

    @property
    def cmd(self) -> str:
        """Name of the stream with the work queues of all services."""
        return f"KOORD_CMD_{self.cluster}"

    @property
    def explanations(self) -> str:
        return f"KOORD_EXPLANATIONS_{self.cluster}"

    @property
    def audit(self) -> str:
        """Name of the stream of audit records: who requested what from which service."""
        return f"KOORD_AUDIT_{self.cluster}"

    @property
    def dlq(self) -> str:
        """Name of the stream of dead letters: work items that failed too often."""
        return f"KOORD_DLQ_{self.cluster}"

    @property
    def adv(self) -> str:
        """Name of the stream that keeps messages of the NATS server about streams and consumers."""
        return f"KOORD_ADV_{self.cluster}"

    @property
    def desired_bucket(self) -> str:
        return f"koord_desired_{self.cluster}"

    @property
    def desired(self) -> str:
        """Name of the stream behind the KV bucket with the desired states of nodes."""
        return f"KV_{self.desired_bucket}"

    @property
    def leader_bucket(self) -> str:
        """Name of the KV bucket with leadership leases, for installations without Kubernetes leases."""
        return f"koord_leader_{self.cluster}"

    @property
    def leader(self) -> str:
        """Name of the stream behind the KV bucket with leadership leases."""
        return f"KV_{self.leader_bucket}"

    @property
    def snapshot_bucket(self) -> str:
        return f"koord_snap_{self.cluster}"

    def snapshot_bucket_of(self, user: str) -> str:
        """Return the object store of a user's snapshots. A service has a store of its own, so no other one can replace
        or delete its snapshots. `user`: name of the NATS user.
        """
        return f"koord_saved_{self.cluster}_{user}" if user in SAVED_FOLDS else self.snapshot_bucket

    @property
    def earlier_snapshot_buckets(self) -> Mapping[str, str]:
        """First tokens of the subjects of the stream `snapshots` -> the service that wrote there; "" for any one. Its
        snapshots are those of earlier releases. No service writes there any more.
        """
        return {self.snapshot_bucket: "", **{f"{self.snapshot_bucket}_{service}": service for service in SAVED_FOLDS}}

    @property
    def snapshots(self) -> str:
        """Name of the stream with the snapshots of earlier releases."""
        return f"OBJ_{self.snapshot_bucket}"

    def snapshots_of(self, service: str) -> str:
        """Return the name of the stream with the snapshots of a service."""
        return f"OBJ_{self.snapshot_bucket_of(service)}"

    @property
    def with_snapshots(self) -> tuple[str, ...]:
        """Names of all streams with snapshots."""
        return (self.snapshots, *(self.snapshots_of(service) for service in SAVED_FOLDS))

    @property
    def in_backup(self) -> tuple[str, ...]:
        """Names of the streams that a backup contains. The stream of facts is the last one. So every snapshot and every
        desired state in a backup is about facts that it contains, too. Observations, work queues, advisories and leases
        of leaders are left out: they are useless an hour later.
        """
        return (*self.with_snapshots, self.desired, self.dlq, self.explanations, self.audit, self.ev)

    def stream_of(self, class_: str) -> str:
        """Return the name of the stream that holds a class of subjects. `class_`: "ev" (facts), "obs" (observations),
        "explanations" or "audit" (requests).

        Raises:
            KeyError: Another class.
        """
        return {"ev": self.ev, "obs": self.obs, "explanations": self.explanations, "audit": self.audit}[class_]

    @property
    def root(self) -> str:
        """Prefix `koord.<cluster>.` of all subjects of the cluster."""
        return f"koord.{self.cluster}."

    def prefix(self, class_: str) -> str:
        """Return the prefix `koord.<cluster>.<class>.` of all subjects of a class."""
        return f"koord.{self.cluster}.{class_}."

    def subject(self, class_: str, ref: AggregateRef) -> str:
        """Return the subject `koord.<cluster>.<class>.<kind>.<id>` of an aggregate. `class_`: "ev" (facts), "obs"
        (observations), "explanations" or "audit" (requests).

        Raises:
            InvalidName: Kind or id contain a separator, a wildcard, a blank or a non-ASCII character.
        """
        if not _TOKEN.fullmatch(ref.id) or not _TOKEN.fullmatch(ref.kind):
            raise InvalidName(f"aggregate: kind and id must be subject tokens, got {ref.kind!r}, {ref.id!r}")
        return f"koord.{self.cluster}.{class_}.{ref.kind}.{ref.id}"

    def desired_subject(self, node_token: str) -> str:
        """Return the subject of a node's key in the KV bucket with desired states. `node_token`: name of the node as a
        subject token, see `name_token`.
        """
        return f"$KV.{self.desired_bucket}.node.{node_token}"

    def dlq_subject(self, consumer: str) -> str:
        return f"koord.{self.cluster}.dlq.{consumer}"
