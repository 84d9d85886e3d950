"""Add Reservations to the figures of nodes; a new version of the projection folds all rows again."""

from typing import Final

from alembic import op

revision: Final = "0004"
down_revision: Final = "0003"
branch_labels: Final = None
depends_on: Final = None


def upgrade() -> None:
    """Add the columns for unused amounts of Reservations to the table `node_versions`."""
    for column in ("reservations", "cpu_unused_reserved", "memory_unused_reserved", "gpus_unused_reserved"):
        op.execute(f"ALTER TABLE node_versions ADD COLUMN {column} bigint NOT NULL DEFAULT 0")
