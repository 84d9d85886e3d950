"""Add the shares of GPUs to the figures of nodes; a new version of the projection folds all rows again."""

from typing import Final

from alembic import op

revision: Final = "0003"
down_revision: Final = "0002"
branch_labels: Final = None
depends_on: Final = None


def upgrade() -> None:
    """Add the columns for shares of GPUs to the table `node_versions`."""
    for column in ("gpu_cards", "gpu_share_used", "gpu_share_stranded"):
        op.execute(f"ALTER TABLE node_versions ADD COLUMN {column} bigint NOT NULL DEFAULT 0")
