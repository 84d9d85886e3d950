"""Script that alembic runs: apply the migrations on the given connection."""

from alembic import context

from koord_projector.store.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
