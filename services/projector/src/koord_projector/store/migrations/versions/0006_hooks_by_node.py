"""Add an index of the facts about runtime hooks, so that those of one pod are found among all facts of its node."""

from typing import Final

from alembic import op

revision: Final = "0006"
down_revision: Final = "0005"
branch_labels: Final = None
depends_on: Final = None


def upgrade() -> None:
    """Add the index `hooks_by_node`."""
    op.execute(
        "CREATE INDEX hooks_by_node ON events (id, seq)"
        " WHERE type IN ('ContainerHookApplied', 'ContainerHookFailed', 'HookServerFailed')"
    )
