"""Kills for lack of memory belong to the stories of pods: their facts are in the index that finds them by node."""

from typing import Final

from alembic import op

revision: Final = "0011"
down_revision: Final = "0010"
branch_labels: Final = None
depends_on: Final = None


def upgrade() -> None:
    op.execute("DROP INDEX IF EXISTS hooks_by_node")
    op.execute(
        "CREATE INDEX hooks_by_node ON events (id, seq)"
        " WHERE type IN ('ContainerHookApplied', 'ContainerHookFailed', 'HookServerFailed', 'ContainersOomKilled')"
    )


def downgrade() -> None:
    raise NotImplementedError
