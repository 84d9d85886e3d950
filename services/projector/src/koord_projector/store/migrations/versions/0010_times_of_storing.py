"""Add the times of storing: the greatest one up to each fact, and that of each usage report.

The table `events` has the server's time of storing of every fact, so its new column is exact. It replaces the index by
the times of the writers. Archived reports have no such time. Reports that the stream still has get it, because they are
archived again. For the others, the time of the report stands in, and `is_approximate` says so.
"""

from typing import Final

from alembic import op

revision: Final = "0010"
down_revision: Final = "0009"
branch_labels: Final = None
depends_on: Final = None

STATEMENTS: Final = (
    "ALTER TABLE events ADD COLUMN reached_ns bigint NOT NULL DEFAULT 0",
    """
    UPDATE events AS e SET reached_ns = r.reached_ns
      FROM (SELECT seq, max(stored_at_ns) OVER (ORDER BY seq) AS reached_ns FROM events) AS r
     WHERE e.seq = r.seq
    """,
    "ALTER TABLE events ALTER COLUMN reached_ns DROP DEFAULT",
    "DROP INDEX events_by_time",
    "CREATE INDEX events_by_time ON events (reached_ns, seq)",
    "ALTER TABLE observations ADD COLUMN stored_at_ns bigint NOT NULL DEFAULT 0",
    "ALTER TABLE observations ADD COLUMN is_approximate boolean NOT NULL DEFAULT true",
    # A report that is dated ahead must not hide those that come.
    """
    UPDATE observations SET stored_at_ns = CAST(1000000000 * extract(epoch FROM LEAST(
           CAST(reported_at AS timestamptz), now())) AS bigint)
    """,
    "ALTER TABLE observations ALTER COLUMN stored_at_ns DROP DEFAULT",
    "ALTER TABLE observations ALTER COLUMN is_approximate DROP DEFAULT",
    "CREATE INDEX observations_of_node ON observations (token, stored_at_ns, seq)",
    "CREATE INDEX observations_by_storing ON observations (stored_at_ns)",
    "UPDATE projection SET position = 0 WHERE stream = 'obs'",
)


def upgrade() -> None:
    """Add the columns and fill them. The facts are read and written once."""
    for statement in STATEMENTS:
        op.execute(statement)
