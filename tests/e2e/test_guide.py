"""Each page of the documentation whose commands need only this machine does what it shows."""

from pathlib import Path
from typing import Any

import pytest
from support.guide import ROOT, Reader, name_of, pages_run_here
from support.servers import server_directory

pytestmark = [
    pytest.mark.slow,
    pytest.mark.nats,
    pytest.mark.postgres,
    pytest.mark.xdist_group("guide"),
]

FIRST = "docs/guide/one-machine.md"


@pytest.fixture(scope="module", autouse=True)
def environment() -> None:
    """Install what the lock file names, so that `make install` of a page, in a folder of links, changes nothing."""
    Reader(ROOT, {}).run("make install")


def pages() -> list[Any]:
    """All of them in `make test-all`; the first one, which is read by everybody, in each run."""
    return [pytest.param(page, marks=[] if name_of(page) == FIRST else [pytest.mark.deep]) for page in pages_run_here()]


@pytest.mark.deep
@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_command_of_the_page_prints_what_the_page_shows(page: Path) -> None:
    with server_directory() as folder:
        reader = Reader(folder, {"KOORD_VAR": str(folder / "var")})
        try:
            reader.follow(page)
        finally:
            reader.run("koord down || true")
