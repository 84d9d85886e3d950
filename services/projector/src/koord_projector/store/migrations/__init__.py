"""Versions of the tables.

The service applies them itself when it starts (`koord_projector.store.database.migrate`).
"""
