"""Add conditions and taints to the figures of nodes, and an index of what is marked on the time axis.

A new version of the projection folds all rows again.
"""

from typing import Final

from alembic import op

revision: Final = "0012"
down_revision: Final = "0011"
branch_labels: Final = None
depends_on: Final = None


def upgrade() -> None:
    for column in ("conditions", "taints"):
        op.execute(f"ALTER TABLE node_versions ADD COLUMN {column} text NOT NULL DEFAULT ''")
    op.execute(
        "CREATE INDEX marks ON events (type, seq)"
        " WHERE type IN ('PodEvicted', 'ConfigAccepted', 'ConfigRejected', 'ConfigDeleted', 'DeschedulerConfigured')"
    )
