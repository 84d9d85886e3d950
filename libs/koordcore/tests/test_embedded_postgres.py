"""A real Postgres: created once, killed, recovered, refused, as root and not."""

import psycopg
import pytest
from servers import run_now, running_postgres

pytestmark = pytest.mark.postgres


def test_each_test_gets_an_empty_database(postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
        assert tables == (0,)
        connection.execute("CREATE TABLE pod (uid text PRIMARY KEY)")


def test_committed_rows_survive_kill_9_with_an_open_session() -> None:
    with running_postgres(synchronous_commit=True) as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE fact (seq int)")
            connection.execute("INSERT INTO fact SELECT generate_series(1, 1000)")
            run_now(server.kill())
        assert not server.is_running
        port = server.port

        run_now(server.start())

        assert server.port == port
        with psycopg.connect(server.dsn) as connection:
            assert connection.execute("SELECT count(*), max(seq) FROM fact").fetchone() == (1000, 1000)
