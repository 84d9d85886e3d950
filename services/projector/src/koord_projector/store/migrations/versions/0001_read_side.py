"""The read side: facts, aggregates, pods, nodes, series, archives."""

from typing import Final

from alembic import op

revision: Final = "0001"
down_revision: Final = None
branch_labels: Final = None
depends_on: Final = None

# Written as SQL, not taken from `tables`: a version says what was true when it was written. Storage settings:
# ledgers and reports are larger than a quarter page, and pglz would cost more CPU than the bytes are worth; rows of
# `pods` get two or three more positions filled in, which stays on the page when there is room.
STATEMENTS: Final = (
    """
    CREATE TABLE projection (
        stream text PRIMARY KEY,
        position bigint NOT NULL,
        event_id text NOT NULL,
        schema text NOT NULL
    )
    """,
    """
    CREATE TABLE events (
        seq bigint PRIMARY KEY,
        kind text NOT NULL,
        id text NOT NULL,
        type text NOT NULL,
        schema integer NOT NULL,
        occurred_at text COLLATE "C" NOT NULL,
        stored_at_ns bigint NOT NULL,
        event_id text NOT NULL,
        causation_id text NOT NULL,
        correlation_id text NOT NULL,
        actor text NOT NULL,
        epoch bigint NOT NULL,
        based_on bigint NOT NULL,
        traceparent text NOT NULL,
        body text NOT NULL
    )
    """,
    "ALTER TABLE events ALTER COLUMN body SET STORAGE EXTERNAL",  # in CREATE TABLE only since Postgres 16
    "CREATE INDEX events_of_aggregate ON events (kind, id, seq)",
    "CREATE INDEX events_by_time ON events (left(occurred_at, 27), seq)",
    """
    CREATE TABLE aggregates (
        kind text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        seq bigint NOT NULL,
        state text NOT NULL,
        PRIMARY KEY (kind, id)
    ) WITH (fillfactor = 70)
    """,
    "ALTER TABLE aggregates ALTER COLUMN state SET STORAGE EXTERNAL",  # in CREATE TABLE only since Postgres 16
    """
    CREATE TABLE pods (
        uid text NOT NULL,
        from_seq bigint NOT NULL,
        to_seq bigint,
        namespace text NOT NULL,
        name text NOT NULL,
        qos text NOT NULL,
        priority_class text NOT NULL,
        requests text NOT NULL,
        submitted_seq bigint NOT NULL,
        submitted_at text COLLATE "C" NOT NULL,
        node text NOT NULL,
        placed_seq bigint,
        placed_at text COLLATE "C" NOT NULL,
        started_seq bigint,
        started_at text COLLATE "C" NOT NULL,
        stopped_seq bigint,
        deleted_seq bigint,
        PRIMARY KEY (uid, from_seq)
    ) WITH (fillfactor = 75)
    """,
    "CREATE INDEX pods_living ON pods (submitted_seq) WHERE to_seq IS NULL",
    """
    CREATE TABLE node_versions (
        token text COLLATE "C" NOT NULL,
        seq bigint NOT NULL,
        "exists" boolean NOT NULL,
        unschedulable boolean NOT NULL,
        cpu_milli bigint NOT NULL,
        memory_bytes bigint NOT NULL,
        gpus bigint NOT NULL,
        cpu_requested bigint NOT NULL,
        memory_requested bigint NOT NULL,
        gpus_requested bigint NOT NULL,
        batch_cpu bigint NOT NULL,
        batch_memory bigint NOT NULL,
        batch_cpu_requested bigint NOT NULL,
        batch_memory_requested bigint NOT NULL,
        pods integer NOT NULL,
        be_pods integer NOT NULL,
        pods_running integer NOT NULL,
        be_quota_us bigint NOT NULL,
        host text NOT NULL,
        PRIMARY KEY (token, seq)
    )
    """,
    'CREATE TABLE node_names (token text COLLATE "C" PRIMARY KEY)',
    """
    CREATE TABLE cluster_series (
        second bigint PRIMARY KEY,
        seq bigint NOT NULL,
        nodes bigint NOT NULL,
        cpu_milli bigint NOT NULL,
        memory_bytes bigint NOT NULL,
        gpus bigint NOT NULL,
        cpu_requested bigint NOT NULL,
        memory_requested bigint NOT NULL,
        gpus_requested bigint NOT NULL,
        batch_cpu bigint NOT NULL,
        batch_memory bigint NOT NULL,
        batch_cpu_requested bigint NOT NULL,
        batch_memory_requested bigint NOT NULL,
        pods_pending bigint NOT NULL,
        pods_placed bigint NOT NULL,
        pods_running bigint NOT NULL,
        pods_terminating bigint NOT NULL
    )
    """,
    """
    CREATE TABLE observations (
        token text COLLATE "C" NOT NULL,
        reported_at text COLLATE "C" NOT NULL,
        seq bigint NOT NULL,
        event_id text NOT NULL,
        cpu_used bigint NOT NULL,
        memory_used bigint NOT NULL,
        be_cpu_used bigint NOT NULL,
        be_memory_used bigint NOT NULL,
        system_cpu_used bigint NOT NULL,
        interval_seconds bigint NOT NULL,
        body bytea NOT NULL,
        PRIMARY KEY (token, reported_at)
    )
    """,
    "ALTER TABLE observations ALTER COLUMN body SET STORAGE EXTERNAL",  # in CREATE TABLE only since Postgres 16
    "CREATE INDEX observations_by_time ON observations (reported_at)",
    """
    CREATE TABLE verdicts (
        uid text NOT NULL,
        occurred_at text COLLATE "C" NOT NULL,
        event_id text NOT NULL,
        seq bigint NOT NULL,
        type text NOT NULL,
        attempt bigint NOT NULL,
        based_on bigint NOT NULL,
        actor text NOT NULL,
        traceparent text NOT NULL,
        body text NOT NULL,
        PRIMARY KEY (uid, occurred_at, event_id)
    )
    """,
)


def upgrade() -> None:
    """Create all tables of the read side."""
    for statement in STATEMENTS:
        op.execute(statement)
