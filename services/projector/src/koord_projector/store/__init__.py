"""Postgres: tables, migrations, writing and loading."""
