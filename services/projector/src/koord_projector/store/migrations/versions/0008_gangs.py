"""Add the gang to the rows of pods; a new version of the projection folds all rows again."""

from typing import Final

from alembic import op

revision: Final = "0008"
down_revision: Final = "0007"
branch_labels: Final = None
depends_on: Final = None


def upgrade() -> None:
    """Add the column `gang` to the table `pods`, and an index of the pods that belong to gangs."""
    op.execute("ALTER TABLE pods ADD COLUMN gang text NOT NULL DEFAULT ''")
    op.execute("CREATE INDEX pods_of_gangs ON pods (namespace, gang) WHERE gang <> ''")
