"""Parts of pages that need another place than the rest of the page, and pages at other addresses than they have."""

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path

from support.guide import ROOT, Command, Reader, shows
from support.until import until_blocking

DOCS = ROOT / "docs"
SECTIONS = {
    ("backup.md", "With servers of their own"): "tests/contract/bus/test_pages.py",
    ("backup.md", "Its keys on compose and Kubernetes"): "tests/compose/test_compose.py",
    ("upgrades.md", "From a log with one account"): "tests/contract/bus/test_account_upgrade.py",
    ("upgrades.md", "On compose"): "tests/compose/test_compose.py",
}
"""Page and heading of each section that needs another place than the rest of its page -> the test that follows it."""
_FENCE = "```"


def sections_for(test: str, folder: Path) -> list[Path]:
    """Write each section that a test follows as a page of its own, and return the files."""
    mine = [section for section, follower in SECTIONS.items() if test.endswith(follower)]
    return [_written(folder / page, [dict(_sections(DOCS / page))[heading]]) for page, heading in mine]


def rest_of(page: str, folder: Path) -> Path:
    """Write a page without the sections that need another place, and return its file."""
    return _written(
        folder / page, [text for heading, text in _sections(DOCS / page) if (page, heading) not in SECTIONS]
    )


def _sections(page: Path) -> Iterator[tuple[str, str]]:
    """Yield each heading, without its marks, with the text up to the next heading of any level."""
    heading, lines, is_code = "", list[str](), False
    for line in page.read_text().splitlines(keepends=True):
        is_code ^= line.startswith(_FENCE)
        if line.startswith("#") and not is_code:
            yield heading, "".join(lines)
            heading, lines = line.strip("# \n"), []
        lines.append(line)
    yield heading, "".join(lines)


def _written(file: Path, texts: Iterable[str]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(texts))
    return file


class ReaderElsewhere(Reader):
    """Follows a page whose addresses do not exist here.

    Args:
        folder: Where the reader works.
        environment: Variables that replace those of this process.
        places: What a page names -> what is there instead.
    """

    def __init__(self, folder: Path, environment: dict[str, str], places: Mapping[str, str]) -> None:
        super().__init__(folder, environment)
        self._places = places

    def placed(self, command: str) -> str:
        """Return a command line with the addresses that exist here."""
        names = "|".join(map(re.escape, self._places))
        return re.sub(names, lambda found: self._places[found[0]], command) if names else command

    @contextlib.contextmanager
    def started(self, command: Command) -> Generator[None]:
        """Start a command that runs until it is stopped, enter when it has printed what the page shows, and stop it."""
        with tempfile.NamedTemporaryFile() as said:
            running = subprocess.Popen(
                ["bash", "-c", f"exec {self.placed(command.text)}"],
                cwd=self._folder,
                env=self._environment,
                stdout=said,
                stderr=subprocess.STDOUT,
            )

            def has_printed() -> bool:
                printed = Path(said.name).read_text()
                assert running.poll() is None, f"$ {command.text}\nhas ended:\n{printed}"
                return shows(command, printed)

            try:
                until_blocking(has_printed, command.text)
                yield
            finally:
                running.terminate()
                running.wait()
