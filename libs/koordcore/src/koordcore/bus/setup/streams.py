"""The streams, KV buckets and the object store of one cluster, as values.

`bootstrap` creates them. KV buckets and object stores are streams, too.

Source: event-bus spec, 2 (table), 9.2.
"""

from dataclasses import dataclass, fields
from typing import Any

from koordcore.bus.names import AUDIT_WRITERS, SAVED_FOLDS, BusNames

_SECOND = 1_000_000_000
MIB = 1024 * 1024
LARGEST_REPORT = 256 * 1024  # bytes of a usage report: that of a node with 250 pods has 100 KiB
# Bytes of a fact of a node, headers included: the topology of 512 CPUs with 250 pods has 60 KiB. The server sends a
# node its facts where the node says, so this is also what one request may cost another agent (decision 0057).
LARGEST_NODE_FACT = 128 * 1024
# Bytes of an audit record, headers included. `koordcore.service.access.records` shortens the texts of larger ones.
LARGEST_RECORD = 4 * 1024
_STORED_WITH = 64  # Bytes that the server counts for the subject of a record, and for its place in the file
_ROOM = 440 * MIB  # a server with the default sizes offers 8 GiB
MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSizes:
    """Largest size of each stream in bytes. The server reserves the space, so the sum must fit its `max_file_store`."""

    ev: int = 2048 * MIB
    obs: int = 512 * MIB
    cmd: int = 64 * MIB
    explanations: int = 512 * MIB
    audit: int = 256 * MIB
    dlq: int = 64 * MIB
    adv: int = 64 * MIB
    desired: int = 256 * MIB
    leader: int = 8 * MIB
    snapshots: int = 2048 * MIB  # Of earlier releases
    saved: int = 640 * MIB  # Snapshots of one service

    def file_store(self) -> int:
        """Return the bytes of disk that a server needs for all streams, plus 440 MiB for streams of later versions."""
        return sum(getattr(self, each.name) for each in fields(self)) + (len(SAVED_FOLDS) - 1) * self.saved + _ROOM


@dataclass(frozen=True, slots=True, kw_only=True)
class Republish:
    """Rule of a stream: the server publishes every stored message of subject `source` also on subject `destination`."""

    source: str
    destination: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSpec:
    """Configuration that one stream on the NATS server must have. Fields are named like those of the JetStream API.
    Sizes are in bytes, ages and windows in seconds. Age 0 keeps messages forever; -1 means no limit.
    """

    name: str
    subjects: tuple[str, ...]  # Subjects whose messages the stream stores; may contain wildcards
    max_bytes: int
    replicas: int = 1
    # "limits" (keep messages up to the limits) or "workqueue" (delete a message that was handled).
    retention: str = "limits"
    discard: str = "old"  # If the stream is full, drop the "old" messages, or refuse the "new" one
    max_age_seconds: int = 0
    max_msgs_per_subject: int = -1
    max_msg_size: int = -1  # Largest size of a message, headers included
    # Time in which a second message with the same id is not stored. The server keeps the ids of this time in memory,
    # and whoever may write chooses how many and how long they are. So it is the shortest that NATS allows, unless
    # somebody sends a message again.
    duplicate_window_seconds: float = 0.1
    allow_direct: bool = False
    allow_atomic: bool = False
    allow_rollup: bool = False
    allow_msg_ttl: bool = False
    deny_delete: bool = False
    compression: str = "none"
    republish: Republish | None = None  # Rule for republishing stored messages; None: no republishing
    holds_facts: bool = False  # Whether it is the stream of facts
    # Whether a message in it proves that the stream of facts existed: its writers fold or await that stream first.
    proves_facts: bool = False
    holds_positions: bool = False  # Whether its messages are states at a position of the log
    is_optional: bool = False  # Whether services run without it, if the servers lack room for it
    description: str = ""

    def config(self) -> dict[str, Any]:
        """Return the configuration as JSON value of the JetStream API, which has times in nanoseconds."""
        config: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "subjects": list(self.subjects),
            "retention": self.retention,
            "discard": self.discard,
            "storage": "file",
            "num_replicas": self.replicas,
            "max_bytes": self.max_bytes,
            "max_age": self.max_age_seconds * _SECOND,
            "max_msgs_per_subject": self.max_msgs_per_subject,
            "duplicate_window": int(self.duplicate_window_seconds * _SECOND),
            "allow_direct": self.allow_direct,
            "allow_atomic": self.allow_atomic,
            "allow_rollup_hdrs": self.allow_rollup,
            "allow_msg_ttl": self.allow_msg_ttl,
            "deny_delete": self.deny_delete,
            "deny_purge": False,
            "compression": self.compression,
            "max_msgs": -1,
            "max_consumers": -1,
            "max_msg_size": self.max_msg_size,
        }
        if self.republish is not None:
            config["republish"] = {"src": self.republish.source, "dest": self.republish.destination}
        return config


def streams(names: BusNames, *, replicas: int, sizes: StreamSizes | None = None) -> tuple[StreamSpec, ...]:
    """Return the configurations of all streams of one cluster. `replicas`: number of servers that store each stream
    with facts, requests or desired state: 3 in production, 1 on a single server. Other streams have one. `sizes`:
    largest size of each stream; None: the defaults.
    """
    limits = sizes or StreamSizes()
    c = names.cluster
    return (
        StreamSpec(
            name=names.obs,
            description="observations: usage samples, heartbeats",
            subjects=(f"koord.{c}.obs.>",),
            max_bytes=limits.obs,
            max_age_seconds=2 * HOUR,
            # One node's newest reports fill 45 MiB at most, so it cannot push the reports of others out of the stream.
            max_msgs_per_subject=180,
            max_msg_size=LARGEST_REPORT,
            allow_direct=True,
        ),
        StreamSpec(
            name=names.cmd,
            description="requests to act",
            subjects=(f"koord.{c}.cmd.*.*",),
            max_bytes=limits.cmd,
            replicas=replicas,
            retention="workqueue",
            max_age_seconds=HOUR,
            duplicate_window_seconds=2 * MINUTE,
        ),
        StreamSpec(
            name=names.explanations,
            description="explanations of attempts and admissions, with reasons",
            subjects=(f"koord.{c}.explanations.>",),
            max_bytes=limits.explanations,
            max_msgs_per_subject=20,
            max_age_seconds=7 * DAY,
            allow_direct=True,
            proves_facts=True,
        ),
        StreamSpec(
            name=names.audit,
            description="audit records: who asked the services for what",
            subjects=(f"koord.{c}.audit.>",),
            max_bytes=limits.audit,
            replicas=replicas,
            max_age_seconds=90 * DAY,
            # All that one writer can store fits its part, so it cannot push the records of others out of the stream.
            max_msgs_per_subject=limits.audit // len(AUDIT_WRITERS) // (LARGEST_RECORD + _STORED_WITH),
            max_msg_size=LARGEST_RECORD,
            deny_delete=True,
            allow_direct=True,
        ),
        StreamSpec(
            name=names.dlq,
            description="parked work items",
            subjects=(f"koord.{c}.dlq.*",),
            max_bytes=limits.dlq,
            replicas=replicas,
            max_age_seconds=30 * DAY,
            duplicate_window_seconds=2 * MINUTE,
            proves_facts=True,
            allow_direct=True,
        ),
        StreamSpec(
            name=names.adv,
            description="advisories about consumers and streams",
            subjects=_advisories(names),
            max_bytes=limits.adv,
            max_age_seconds=7 * DAY,
            proves_facts=True,
            allow_direct=True,
        ),
        StreamSpec(
            name=names.desired,
            description="folded desired state per node for agents",
            subjects=(f"$KV.{names.desired_bucket}.>",),
            max_bytes=limits.desired,
            replicas=replicas,
            discard="new",
            max_msgs_per_subject=3,
            allow_direct=True,
            deny_delete=True,
            proves_facts=True,
            holds_positions=True,
        ),
        StreamSpec(
            name=names.leader,
            description="leadership terms where there are no Kubernetes leases",
            subjects=(f"$KV.{names.leader_bucket}.>",),
            max_bytes=limits.leader,
            replicas=replicas,
            discard="new",
            max_msgs_per_subject=1,
            allow_msg_ttl=True,
            deny_delete=True,
            proves_facts=True,
        ),
        StreamSpec(
            name=names.snapshots,
            description="snapshots of folds, of earlier releases",
            subjects=_objects(*names.earlier_snapshot_buckets),
            max_bytes=limits.snapshots,
            replicas=replicas,
            discard="new",
            allow_direct=True,
            allow_rollup=True,  # services of the release before drop their snapshots with it
            proves_facts=True,
            holds_positions=True,
        ),
        *(
            StreamSpec(
                name=names.snapshots_of(service),
                description=f"snapshots of the folds of the {service}",
                subjects=_objects(names.snapshot_bucket_of(service)),
                max_bytes=limits.saved,
                replicas=replicas,
                discard="new",
                allow_direct=True,
                # Whoever may roll up one subject of a stream may roll up all of it, so no other service writes to it.
                allow_rollup=True,
                proves_facts=True,
                holds_positions=True,
                is_optional=True,
            )
            for service in SAVED_FOLDS
        ),
        # The last one, because services wait for it alone.
        StreamSpec(
            name=names.ev,
            holds_facts=True,
            description="facts, by aggregate",
            subjects=(f"koord.{c}.ev.>",),
            max_bytes=limits.ev,
            replicas=replicas,
            discard="new",
            duplicate_window_seconds=5 * MINUTE,
            allow_direct=True,
            allow_atomic=True,
            deny_delete=True,
            # Decisions 0037 and 0045: with compression, one bad bit makes the server drop the whole stream.
            compression="none",
            republish=Republish(
                source=f"koord.{c}.ev.*.*", destination=f"koord.{c}.push." + "{{wildcard(1)}}.{{wildcard(2)}}"
            ),
        ),
    )


def _objects(*buckets: str) -> tuple[str, ...]:
    """Return the subjects of object stores: those of pieces and those of entries."""
    return tuple(f"$O.{bucket}.{part}.>" for bucket in buckets for part in ("C", "M"))


def _advisories(names: BusNames) -> tuple[str, ...]:
    """Return the advisory subjects of this cluster's streams only, because clusters may share a server in tests."""
    about_consumers = ("MAX_DELIVERIES", "MSG_TERMINATED")
    about_stream = ("CREATED", "DELETED", "UPDATED", "LEADER_ELECTED", "QUORUM_LOST")
    return (
        *(
            f"$JS.EVENT.ADVISORY.CONSUMER.{event}.{stream}.>"
            for stream in (names.cmd, names.ev)
            for event in about_consumers
        ),
        *(f"$JS.EVENT.ADVISORY.STREAM.{event}.{names.ev}" for event in about_stream),
    )
