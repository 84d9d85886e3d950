"""Add an index of contentions and evictions by agents, so that the newest ones are found among all facts."""

from typing import Final

from alembic import op

revision: Final = "0007"
down_revision: Final = "0006"
branch_labels: Final = None
depends_on: Final = None


def upgrade() -> None:
    """Add the index `disturbances`."""
    op.execute(
        "CREATE INDEX disturbances ON events (type, seq)"
        " WHERE type IN ('InterferenceDetected', 'InterferenceEnded', 'PodsEvictedByAgent')"
    )
