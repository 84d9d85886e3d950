"""Each page of the documentation whose commands need only this machine does what it shows.

The pages of the guide follow each other in one folder, as somebody reads them. Any other page has a folder of its own.
"""

import contextlib
from collections.abc import Generator
from pathlib import Path

import pytest
from support.guide import GUIDE, ROOT, Reader, name_of, pages_run_here
from support.servers import server_directory

pytestmark = [
    pytest.mark.slow,
    pytest.mark.nats,
    pytest.mark.postgres,
    pytest.mark.deep,
    pytest.mark.xdist_group("guide"),
]


@pytest.fixture(scope="module", autouse=True)
def environment() -> None:
    """Install what the lock file names, so that `make install` of a page, in a folder of links, changes nothing."""
    Reader(ROOT, {}).run("make install")


@contextlib.contextmanager
def reader_in_a_folder() -> Generator[Reader]:
    with server_directory() as folder:
        reader = Reader(folder, {"KOORD_VAR": str(folder / "var")})
        try:
            yield reader
        finally:
            reader.run("koord down || true")


@pytest.fixture(scope="module")
def reader_of_guide() -> Generator[Reader]:
    with reader_in_a_folder() as reader:
        yield reader


def pages(*, of_guide: bool) -> list[Path]:
    """In the order of the site."""
    navigation = (ROOT / "mkdocs.yml").read_text()
    found = [page for page in pages_run_here() if page.is_relative_to(GUIDE) is of_guide]
    return sorted(found, key=lambda page: navigation.find(f"- guide/{page.name}\n"))


@pytest.mark.parametrize("page", pages(of_guide=True), ids=name_of)
def test_the_guide_can_be_followed_from_page_to_page(reader_of_guide: Reader, page: Path) -> None:
    reader_of_guide.follow(page)


@pytest.mark.parametrize("page", pages(of_guide=False), ids=name_of)
def test_every_command_of_the_page_prints_what_the_page_shows(page: Path) -> None:
    with reader_in_a_folder() as reader:
        reader.follow(page)
