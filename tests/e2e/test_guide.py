"""Each page of the guide that starts a stack on one machine does what it shows."""

from pathlib import Path

import pytest
from support.guide import GUIDE, Reader, steps
from support.servers import server_directory

pytestmark = [pytest.mark.slow, pytest.mark.nats, pytest.mark.postgres, pytest.mark.xdist_group("guide")]


def starts_a_stack(page: Path) -> bool:
    """Return whether the commands of a page run on this machine alone."""
    return any(getattr(step, "text", "").startswith("koord up ") for step in steps(page))


PAGES = sorted(page for page in GUIDE.glob("*.md") if starts_a_stack(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_the_page_prints_what_the_page_shows(page: Path) -> None:
    with server_directory() as folder:
        reader = Reader(folder, {"KOORD_VAR": str(folder / "var")})
        try:
            reader.follow(page)
        finally:
            reader.run("koord down || true")
