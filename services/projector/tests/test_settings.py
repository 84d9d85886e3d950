"""The address of the database with a password that is in a file."""

from pathlib import Path

import pytest
from koord_projector.settings import ProjectorSettings
from psycopg.conninfo import conninfo_to_dict

DSN = "postgresql://koord@db:5432/koord"


@pytest.mark.parametrize("dsn", [DSN, f"{DSN}?sslmode=verify-full"])
def test_the_password_of_the_file_reaches_postgres_as_it_is(tmp_path: Path, dsn: str) -> None:
    password = "a&b=c/%+ ü?"
    (tmp_path / "password").write_text(f"{password}\n")
    settings = ProjectorSettings.load([f"--dsn={dsn}", f"--password-file={tmp_path / 'password'}"], {})

    found = conninfo_to_dict(settings.address())

    assert (found["password"], found["user"], found["dbname"]) == (password, "koord", "koord")
    assert password not in repr(settings)


def test_without_a_file_the_address_is_as_given() -> None:
    assert ProjectorSettings.load([f"--dsn={DSN}"], {}).address() == DSN
