"""Pages of the documentation as programs: their files, their commands, and the output that they show.

A fenced block `yaml title="quota.yaml"` is a file. A fenced block `console` has commands after `$ `, each followed by
its output, in which `...` stands for any text. A command that only reads is repeated until its output is as shown,
because what it shows becomes true a moment later. A command with `--follow` or `--watch` is ended by Ctrl-C after its
first line.
"""

import contextlib
import doctest
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.until import until_blocking

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide"
PAGES = sorted(
    page
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    if not {"decisions", "zh"} & {*page.parts}
)
"""Every page with commands. A Chinese page has the blocks of its English page, and a decision is a record."""

RUN_BY = {
    "docs/backup.md": "tests/e2e/test_pages.py",
    "docs/cri-proxy.md": "tests/kubernetes/test_pages.py",
    "docs/guide/install-on-compose.md": "tests/compose/test_compose.py",
    "docs/guide/install-on-kubernetes.md": "tests/kubernetes/test_workloads.py",
    "docs/guide/try-a-cluster.md": "tests/cluster/test_user_guide.py",
    "docs/kubernetes.md": "tests/kubernetes/test_embedded_stack.py",
    "docs/migrations.md": "tests/e2e/test_pages.py",
    "docs/security.md": "tests/contract/bus/test_pages.py",
    "docs/upgrades.md": "tests/kubernetes/test_pages.py",
}
"""Pages that need other servers, with the test that follows them; tests/e2e/test_guide.py follows all others.

`support.pages.SECTIONS` has the sections that need another place than the rest of their page.
"""

_BLOCK = re.compile(r'^```(?P<kind>\w+)(?: title="(?P<file>[^"]+)")?\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL)
_READING = "node|get|explain|trace|top|status|gang|quota|verify|recommend|audit|events|fit|bus|doctor|deschedule"
_READS = re.compile(rf"^(docker compose run --rm |\.venv/bin/)?koord ({_READING})\b")
_FOLLOWS = re.compile(r" --(follow|watch)\b")
_OWN = frozenset({".git", "var"})
_OF_MAKE = frozenset({"MAKEFLAGS", "MAKELEVEL", "MFLAGS"})
"""Variables by which a `make` knows that another one started it. It says in which folder it works then."""
_EXPORT = re.compile(r"^export (\w+)=")
_MATCHES = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Command:
    """One command of a page.

    Attributes:
        text: The command line for bash.
        output: What the page shows below it; empty if it shows nothing.
    """

    text: str
    output: str

    @property
    def only_reads(self) -> bool:
        """Return whether the command may be repeated."""
        return _READS.match(self.text) is not None


@dataclass(frozen=True)
class File:
    """One file that a page tells the reader to write."""

    name: str
    text: str


def steps(page: Path) -> Iterator[Command | File]:
    """Yield the files and commands of a page, in their order."""
    for block in _BLOCK.finditer(page.read_text()):
        if block["file"]:
            yield File(block["file"], block["text"])
        elif block["kind"] == "console":
            yield from _commands(block["text"])


def pages_run_here() -> list[Path]:
    """Return the pages whose commands run on this machine alone."""
    with_commands = (page for page in PAGES if any(isinstance(step, Command) for step in steps(page)))
    return [page for page in with_commands if name_of(page) not in RUN_BY]


def name_of(page: Path) -> str:
    """Return the path of a page from the root of the repository."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[str]:
    """Return every fenced block of a page with its first line."""
    return [block.group(0) for block in _BLOCK.finditer(page.read_text())]


def _commands(text: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield Command(command, output)


class Reader:
    """Follows a page step by step, as somebody would in a terminal.

    Args:
        folder: Where the reader works: this repository, or an empty folder. The folder becomes a checkout by links,
            with the programs that make has built.
        environment: Variables that replace those of this process.
    """

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        inherited = {name: text for name, text in os.environ.items() if name not in _OF_MAKE}
        self._environment = {**inherited, "COLUMNS": "160", "PATH": path, **environment}
        if folder != ROOT:
            (folder / "var").mkdir()
            shared = [each for each in ROOT.iterdir() if each.name not in _OWN]
            for each in (*shared, *ROOT.glob("var/*tools")):
                (folder / each.relative_to(ROOT)).symlink_to(each)

    def follow(self, page: Path) -> None:
        """Write the files of a page and run its commands.

        Raises:
            AssertionError: A command failed, or its output is not the one that the page shows.
        """
        for step in steps(page):
            if isinstance(step, File):
                (self._folder / step.name).write_text(step.text)
            else:
                self.carry_out(step)

    def carry_out(self, command: Command) -> None:
        """Run a command of a page in the way that its kind needs, and compare what it prints with the page.

        Raises:
            AssertionError: The command failed, or its output is not the one that the page shows.
        """
        if _FOLLOWS.search(command.text):
            self._until_ctrl_c(command.text)
        elif command.only_reads:
            self.run_until_it_succeeds(command)
        else:
            printed = self.run(command.text)
            assert shows(command, printed), f"$ {command.text}\n{printed}\nthe page has:\n{command.output}"

    def run_until_it_succeeds(self, command: Command) -> None:
        """Repeat a command until its exit status is 0 and it prints what its page shows.

        What a command shows may become true only a moment later, on a busy machine long after.

        Raises:
            AssertionError: It did not succeed before the deadline.
        """
        printed = ""

        def is_shown() -> bool:
            nonlocal printed
            try:
                printed = self.run(command.text)
            except AssertionError as error:
                printed = str(error)
                return False
            return shows(command, printed)

        try:
            until_blocking(is_shown, command.text, every=0.5)
        except AssertionError as error:
            raise AssertionError(f"$ {command.text}\n{printed}\nthe page has:\n{command.output}") from error

    def placed(self, command: str) -> str:
        """Return a command line as it is run here. A subclass may replace addresses of the page by others."""
        return command

    def _until_ctrl_c(self, command: str) -> None:
        """Run a command in a terminal until it has printed something, and interrupt it.

        Its output is read until it ends: a command that writes into a full terminal does not end.
        """
        terminal, its_end = pty.openpty()
        with os.fdopen(terminal, "rb"), os.fdopen(its_end, "wb") as output:
            running = subprocess.Popen(
                ["bash", "-c", self.placed(command)],
                cwd=self._folder,
                env=self._environment,
                stdout=output,
                start_new_session=True,
            )

            def has_printed() -> bool:
                assert running.poll() is None, f"$ {command}\nended by itself with status {running.returncode}"
                return bool(select.select([terminal], [], [], 0)[0])

            def has_ended() -> bool:
                if select.select([terminal], [], [], 0)[0]:
                    os.read(terminal, 65_536)
                return running.poll() is not None

            try:
                until_blocking(has_printed, command, every=0.1)
                os.killpg(running.pid, signal.SIGINT)
                until_blocking(has_ended, f"$ {command} ends by Ctrl-C", every=0.001)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGKILL)
                running.wait()

    def run(self, command: str) -> str:
        """Return what a command printed on both of its streams; it must succeed. What it exports holds from then on."""
        if exported := _EXPORT.match(command):
            self._environment[exported[1]] = self.run(f"{command[7:]}; echo -n ${exported[1]}")
            return ""
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", self.placed(command)],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=900,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        return done.stdout


def shows(command: Command, printed: str) -> bool:
    """Return whether a command printed what its page shows; True if the page shows no output."""
    return not command.output or doctest.OutputChecker().check_output(command.output, printed, _MATCHES)
