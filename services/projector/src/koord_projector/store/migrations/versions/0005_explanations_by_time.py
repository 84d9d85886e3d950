"""Add an index by time to the archived explanations, so that old ones are found and deleted."""

from typing import Final

from alembic import op

revision: Final = "0005"
down_revision: Final = "0004"
branch_labels: Final = None
depends_on: Final = None


def upgrade() -> None:
    """Add the index `explanations_by_time`."""
    op.execute("CREATE INDEX explanations_by_time ON explanations (occurred_at)")
