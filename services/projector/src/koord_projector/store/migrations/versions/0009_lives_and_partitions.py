"""Partition the facts by position; add lives, versions and modifications. A new version folds all rows again.

The facts that a database has become the first partition. They are not copied. Until the rows are folded again, an
aggregate counts as one life from its first to its last fact: a state at a past moment is folded from all its facts.
"""

from typing import Final

from alembic import op
from sqlalchemy import text

revision: Final = "0009"
down_revision: Final = "0008"
branch_labels: Final = None
depends_on: Final = None

POSITIONS: Final = 1_000_000
"""Positions of a partition. The first one ends at a multiple of it."""
EARLIER: Final = (
    "ALTER TABLE events RENAME TO events_before",
    "ALTER INDEX events_pkey RENAME TO events_before_pkey",
    "ALTER INDEX events_of_aggregate RENAME TO events_before_of_aggregate",
    "ALTER INDEX events_by_time RENAME TO events_before_by_time",
    "ALTER INDEX hooks_by_node RENAME TO events_before_hooks_by_node",
    "ALTER INDEX disturbances RENAME TO events_before_disturbances",
)
TABLES: Final = (
    """
    CREATE TABLE events (
        seq bigint NOT NULL,
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
        body text NOT NULL,
        CONSTRAINT events_pkey PRIMARY KEY (seq)
    ) PARTITION BY RANGE (seq)
    """,
    "ALTER TABLE events ALTER COLUMN body SET STORAGE EXTERNAL",
    "CREATE INDEX events_of_aggregate ON events (kind, id, seq)",
    "CREATE INDEX events_by_time ON events (left(occurred_at, 27), seq)",
    """
    CREATE INDEX hooks_by_node ON events (id, seq)
     WHERE type IN ('ContainerHookApplied', 'ContainerHookFailed', 'HookServerFailed')
    """,
    """
    CREATE INDEX disturbances ON events (type, seq)
     WHERE type IN ('InterferenceDetected', 'InterferenceEnded', 'PodsEvictedByAgent')
    """,
    "ALTER TABLE aggregates ADD COLUMN from_seq bigint NOT NULL DEFAULT 0",
    "ALTER TABLE aggregates ADD COLUMN events bigint NOT NULL DEFAULT 0",
    """
    CREATE TABLE aggregate_lives (
        kind text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        from_seq bigint NOT NULL,
        to_seq bigint NOT NULL,
        span smallint NOT NULL,
        PRIMARY KEY (kind, id, from_seq)
    )
    """,
    """
    INSERT INTO aggregate_lives
    SELECT kind, id, first, last, length(ltrim(CAST(CAST(last - first AS bit(63)) AS text), '0'))
      FROM (SELECT kind, id, min(seq) AS first, max(seq) + 1 AS last FROM events_before GROUP BY kind, id) AS e
     WHERE NOT EXISTS (SELECT 1 FROM aggregates AS a WHERE a.kind = e.kind AND a.id = e.id)
    """,
    """
    UPDATE aggregates AS a SET from_seq = e.first
      FROM (SELECT kind, id, min(seq) AS first FROM events_before GROUP BY kind, id) AS e
     WHERE a.kind = e.kind AND a.id = e.id
    """,
    "CREATE INDEX aggregate_lives_at ON aggregate_lives (kind, span, from_seq)",
    """
    CREATE TABLE aggregate_versions (
        kind text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        seq bigint NOT NULL,
        state text NOT NULL,
        PRIMARY KEY (kind, id, seq)
    )
    """,
    "ALTER TABLE aggregate_versions ALTER COLUMN state SET STORAGE EXTERNAL",
    """
    CREATE TABLE modifications (
        position bigint NOT NULL,
        number smallint NOT NULL,
        at text COLLATE "C" NOT NULL,
        action text NOT NULL,
        decision text NOT NULL,
        namespace text NOT NULL,
        pod text NOT NULL,
        uid text NOT NULL,
        node text NOT NULL,
        job text NOT NULL,
        plugin text NOT NULL,
        reasons text NOT NULL,
        record text NOT NULL,
        PRIMARY KEY (position, number)
    )
    """,
    "ALTER TABLE pods ADD COLUMN span smallint NOT NULL DEFAULT 0",
    """
    UPDATE pods SET span = length(ltrim(CAST(CAST(to_seq - from_seq AS bit(63)) AS text), '0'))
     WHERE to_seq IS NOT NULL
    """,
    "CREATE INDEX pods_ended ON pods (span, from_seq) WHERE to_seq IS NOT NULL",
    "CREATE INDEX pods_by_name ON pods (namespace, name, from_seq)",
)


def upgrade() -> None:
    """Migrate the database: create the new tables, and copy the existing facts into them."""
    last = op.get_bind().execute(text("SELECT max(seq) FROM events")).scalar()
    for statement in (*EARLIER, *TABLES):
        op.execute(statement)
    if last is None:
        op.execute("DROP TABLE events_before")
    else:
        end = (last // POSITIONS + 1) * POSITIONS
        op.execute(f"ALTER TABLE events ATTACH PARTITION events_before FOR VALUES FROM (MINVALUE) TO ({end})")
