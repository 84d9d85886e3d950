"""The tables of the read side, for statements and for the migrations' test; created by `migrations/`.

    projection        how far each stream is folded, written in the transaction of its rows
    events            every fact, as it stands in the log
    aggregates        canonical state of every aggregate: their hash is the hash of the fold
    pods              lives of pods, one row per episode (`fold.pods`)
    node_versions     figures of nodes, one row per change (`fold.figures`)
    cluster_series    totals per second of stream time (`fold.figures`)
    aggregate_lives   when aggregates existed that no longer exist (`fold.lives`)
    aggregate_versions    states of aggregates after every 32nd event
    modifications     the audit of the descheduler (`koordcore.stories.modifications`)
    observations      archived reports of agents (outlive the stream OBS)
    explanations          why pods could not be placed (outlive the stream of explanations)

The table `events` is partitioned by position (`positions`): old facts are dropped as whole partitions.

Positions are `bigint`; times are the RFC 3339 texts of the events themselves, whose text order is time order, so that
a row gives back exactly what the log held. They are what the writers say. Moments and orders follow the times at which
the server stored the messages, in nanoseconds since 1970: `reached_ns` is the greatest one of a fact and all before it,
and `stored_at_ns` of observations never decreases. It `is_approximate` where an earlier version archived the report.

Bodies are `text`, not `json`: they were validated by the event's own model, and Postgres parsing them again would cost
more than storing them.
"""

from msgspec.structs import fields
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    text,
)

from koord_projector.fold.figures import NodeFigures, Totals
from koord_projector.fold.pods import Phase

metadata = MetaData()
_SMALL = ("pods", "be_pods", "pods_running")
"""Figures of nodes that are `integer`."""


def _type_of(figure: str, kind: object) -> type[Boolean | Text | Integer]:
    if kind is bool or kind is str:
        return Boolean if kind is bool else Text
    return Integer if figure in _SMALL else BigInteger


projection = Table(
    "projection",
    metadata,
    Column("stream", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("schema", Text, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("schema", Integer, nullable=False),
    Column("occurred_at", Text, nullable=False),
    Column("stored_at_ns", BigInteger, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("causation_id", Text, nullable=False),
    Column("correlation_id", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("based_on", BigInteger, nullable=False),
    Column("traceparent", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("reached_ns", BigInteger, nullable=False),
    postgresql_partition_by="RANGE (seq)",
)
Index("events_of_aggregate", events.c.kind, events.c.id, events.c.seq)
Index("events_by_time", events.c.reached_ns, events.c.seq)
Index(
    "hooks_by_node",
    events.c.id,
    events.c.seq,
    postgresql_where=text(
        "type IN ('ContainerHookApplied', 'ContainerHookFailed', 'HookServerFailed', 'ContainersOomKilled')"
    ),
)

Index(
    "disturbances",
    events.c.type,
    events.c.seq,
    postgresql_where=text("type IN ('InterferenceDetected', 'InterferenceEnded', 'PodsEvictedByAgent')"),
)
Index(
    "marks",
    events.c.type,
    events.c.seq,
    postgresql_where=text(
        "type IN ('PodEvicted', 'ConfigAccepted', 'ConfigRejected', 'ConfigDeleted', 'DeschedulerConfigured')"
    ),
)

aggregates = Table(
    "aggregates",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("from_seq", BigInteger, nullable=False),
    Column("events", BigInteger, nullable=False),
)

aggregate_lives = Table(
    "aggregate_lives",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("from_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("to_seq", BigInteger, nullable=False),
    Column("span", SmallInteger, nullable=False),
)
Index("aggregate_lives_at", aggregate_lives.c.kind, aggregate_lives.c.span, aggregate_lives.c.from_seq)

aggregate_versions = Table(
    "aggregate_versions",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),
)

modifications = Table(
    "modifications",
    metadata,
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("number", SmallInteger, primary_key=True, autoincrement=False),
    Column("at", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("decision", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("pod", Text, nullable=False),
    Column("uid", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("plugin", Text, nullable=False),
    Column("reasons", Text, nullable=False),
    Column("record", Text, nullable=False),
)

pods = Table(
    "pods",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("from_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("to_seq", BigInteger),
    Column("namespace", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("qos", Text, nullable=False),
    Column("priority_class", Text, nullable=False),
    Column("requests", Text, nullable=False),
    Column("submitted_seq", BigInteger, nullable=False),
    Column("submitted_at", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("placed_seq", BigInteger),
    Column("placed_at", Text, nullable=False),
    Column("started_seq", BigInteger),
    Column("started_at", Text, nullable=False),
    Column("stopped_seq", BigInteger),
    Column("deleted_seq", BigInteger),
    Column("gang", Text, nullable=False),
    Column("span", SmallInteger, nullable=False),
)
Index("pods_ended", pods.c.span, pods.c.from_seq, postgresql_where=text("to_seq IS NOT NULL"))
Index("pods_by_name", pods.c.namespace, pods.c.name, pods.c.from_seq)
Index("pods_living", pods.c.submitted_seq, postgresql_where=text("to_seq IS NULL"))

Index("pods_of_gangs", pods.c.namespace, pods.c.gang, postgresql_where=text("gang <> ''"))

node_versions = Table(
    "node_versions",
    metadata,
    Column("token", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    *(Column(field.name, _type_of(field.name, field.type), nullable=False) for field in fields(NodeFigures)),
)

node_names = Table("node_names", metadata, Column("token", Text, primary_key=True))
"""Names of all nodes that were ever mentioned. Look-ups of newest node versions begin here."""

cluster_series = Table(
    "cluster_series",
    metadata,
    Column("second", BigInteger, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
    *(Column(field.name, BigInteger, nullable=False) for field in fields(Totals)),
    *(Column(f"pods_{phase}", BigInteger, nullable=False) for phase in Phase),
)

observations = Table(
    "observations",
    metadata,
    Column("token", Text, primary_key=True),
    Column("reported_at", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("cpu_used", BigInteger, nullable=False),
    Column("memory_used", BigInteger, nullable=False),
    Column("be_cpu_used", BigInteger, nullable=False),
    Column("be_memory_used", BigInteger, nullable=False),
    Column("system_cpu_used", BigInteger, nullable=False),
    Column("interval_seconds", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("stored_at_ns", BigInteger, nullable=False),
    Column("is_approximate", Boolean, nullable=False),
)
Index("observations_by_time", observations.c.reported_at)
Index("observations_of_node", observations.c.token, observations.c.stored_at_ns, observations.c.seq)
Index("observations_by_storing", observations.c.stored_at_ns)

explanations = Table(
    "explanations",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("occurred_at", Text, primary_key=True),
    Column("event_id", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("based_on", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("traceparent", Text, nullable=False),
    Column("body", Text, nullable=False),
)
Index("explanations_by_time", explanations.c.occurred_at)

FOLDED = (
    events, aggregates, aggregate_lives, aggregate_versions, modifications, pods, node_versions, node_names,
    cluster_series,
)  # fmt: skip
"""Tables that a rebuild deletes and creates again from facts. Archives are not included."""
