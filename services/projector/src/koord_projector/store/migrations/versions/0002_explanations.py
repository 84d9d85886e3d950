"""Rename the archive of explanations; their stream has a new name and is followed from its first message."""

from typing import Final

from alembic import op

revision: Final = "0002"
down_revision: Final = "0001"
branch_labels: Final = None
depends_on: Final = None


def upgrade() -> None:
    """Rename the table of explanations and delete the position of the old stream."""
    op.execute("ALTER TABLE verdicts RENAME TO explanations")
    op.execute("ALTER INDEX verdicts_pkey RENAME TO explanations_pkey")
    op.execute("DELETE FROM projection WHERE stream = 'why'")
