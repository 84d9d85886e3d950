"""Versions of the tables, applied by the service itself when it starts (`koord_projector.shell.database.migrate`)."""
