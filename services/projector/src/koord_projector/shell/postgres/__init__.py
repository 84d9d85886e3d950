"""Postgres: tables, migrations, and how rows get in and out again."""
