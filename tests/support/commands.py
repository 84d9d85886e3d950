"""Commands in the text of the documentation: what each calls, and with which options.

A command in a `console` block is executed as it stands, see `support.guide`. A command in a sentence or in a table is
often a pattern, such as `koord explain pod NAME`. It counts as executed if an executed command calls the same thing
with all of its options; the values may differ.
"""

import ast
import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from koordctl.app import app
from support.guide import ROOT
from typer.main import get_command

_OTHERS = "make|kubectl|docker|docker-compose|helm|python3?|uv|pip|curl|nats-server|journalctl|systemd-analyze"
PROGRAMS = rf"(?:[\w./$-]*/)?(?:koord(?:-\w+)?|{_OTHERS})"
_FENCED = re.compile(r"^ *```(?P<head>[^\n]*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^\n|\A)((?:^    [^\n]*\n)+)", re.MULTILINE)
_KNOWN = re.compile(r"^console$|^sh$|title=")
_INLINE = re.compile(r"`([^`]+)`")
_COMMAND = re.compile(rf"(?:\$ )?(?:[A-Z_]+=\S+ )*(?:sudo |chrt -f \d+ )?{PROGRAMS} +\S")
_SEPARATORS = frozenset({"|", "||", "&&", ";", "&", "(", ")", "|&"})
_WITH_VALUE = frozenset({"--profile", "--env-file", "--entrypoint", "-s"})
"""Options of docker compose with a value in the next word."""
_WITH_COMMANDS = frozenset({"run", "exec"})
"""What docker compose does with a command in a service."""
_WITH_SERVICES = _WITH_COMMANDS | {"up", "logs", "restart", "kill", "stop", "start", "ps"}
"""What docker compose does with services."""
_SETTING = re.compile(r"[A-Z_]+=")
_PLACEHOLDER = re.compile(r"[A-Z_]+|<.*|\[.*|\.\.\.")


@dataclass(frozen=True)
class Call:
    """What a command calls.

    Attributes:
        words: The program and the words that select what it does, such as `koord bus dlq` or `make demo`.
        options: Names of the options, each in its longest form. For make, the names of the variables.
    """

    words: tuple[str, ...]
    options: frozenset[str]

    def is_shown_by(self, executed: "Call") -> bool:
        """Return whether an executed command calls the same thing with at least the same options."""
        return executed.words[: len(self.words)] == self.words and self.options <= executed.options


def calls(command: str) -> Iterator[Call]:
    """Yield what a command line calls: each command of a pipeline or list whose program is known."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="();|&")
    lexer.commenters = "#"
    lexer.whitespace_split = True
    part: list[str] = []
    for word in [*lexer, ";"]:
        if word not in _SEPARATORS:
            part.append(word)
        elif part:
            yield from _call(part)
            part = []


def _call(words: list[str]) -> Iterator[Call]:
    while words and (_SETTING.match(words[0]) or words[0] == "sudo"):
        words = words[1:]
    if words[:2] == ["chrt", "-f"]:
        words = words[3:]
    if not words or not re.fullmatch(PROGRAMS, words[0]):
        return
    program, rest = words[0].rpartition("/")[2], words[1:]
    if program == "koord":
        yield _of_koord(rest)
    elif program == "docker" and rest[:1] == ["compose"]:
        yield from _of_compose(rest[1:])
    elif rest[:2] == ["-m", "tests.bench"]:
        yield from _of_bench(rest[2:])
    elif program == "make":
        targets = [word for word in rest if not _SETTING.match(word)]
        variables = frozenset(word.partition("=")[0] for word in rest if _SETTING.match(word))
        yield from (Call(("make", target), variables) for target in targets)
    else:
        chosen = [word for word in rest if not word.startswith("-")]
        yield Call((program, *_known(chosen[:1])), _names(rest))


def _of_koord(words: list[str]) -> Call:
    command = _koord()
    path = ["koord"]
    while words and (children := getattr(command, "commands", {})) and _known(words[:1]) and words[0][:1] != "-":
        path = [*path, words[0]]
        if (child := children.get(words[0])) is None:
            return Call(tuple(path), frozenset())  # there is no such command, so nothing executes it
        command, words = child, words[1:]
    longest = {
        spelling: max((*option.opts, *option.secondary_opts), key=len)
        for option in command.params
        for spelling in (*option.opts, *option.secondary_opts)
        if spelling.startswith("-")
    }
    return Call(tuple(path), frozenset(longest.get(option, option) for option in _names(words)))


@cache
def _koord() -> Any:
    return get_command(app)


def _of_compose(words: list[str]) -> Iterator[Call]:
    """Yield the call of docker compose, one for each service that it names, and that of the command in a service."""
    outer, inside = _split(words)
    names = _names(outer)
    chosen = [word for before, word in pairwise(["", *outer]) if not word.startswith("-") and before not in _WITH_VALUE]
    yield Call(("docker", "compose", *_known(chosen[:1])), names)
    services = chosen[1:] if chosen and chosen[0] in _WITH_SERVICES else []
    yield from (service(name) for name in _known(services))
    if inside:
        yield from _call(["koord", *inside] if services == ["koord"] and "--entrypoint" not in names else inside)


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the words for docker compose itself, up to the service, and those of a command in the service."""
    chosen = 0
    for at, (before, word) in enumerate(pairwise(["", *words])):
        chosen += not word.startswith("-") and before not in _WITH_VALUE
        if chosen == 2 and not _WITH_COMMANDS.isdisjoint(words[:at]):
            return words[: at + 1], words[at + 1 :]
    return words, []


def service(name: str) -> Call:
    """Return the call that stands for a service of docker-compose.yml."""
    return Call(("a service of docker-compose.yml", name), frozenset())


def compose_services() -> list[Call]:
    """Return one call for each service of docker-compose.yml."""
    return [service(name) for name in yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]]


def _of_bench(words: list[str]) -> Iterator[Call]:
    """Yield one call for each measurement; all have the same options."""
    names = [word for at, word in enumerate(words) if word[:1] != "-" and (at == 0 or words[at - 1][:2] != "--")]
    for name in _known(names) or [""]:
        yield Call(("python -m tests.bench", name) if name else ("python -m tests.bench",), _names(words))


def _names(words: Iterable[str]) -> frozenset[str]:
    return frozenset(word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word))


def _known(words: Iterable[str]) -> list[str]:
    return [word for word in words if not _PLACEHOLDER.fullmatch(word)]


def unexecuted_lines(page: Path) -> list[str]:
    """Return the lines of blocks of a page that are commands, but not in a block that says how it is executed."""
    text = page.read_text()
    plain = [block["text"] for block in _FENCED.finditer(text) if not _KNOWN.search(block["head"])]
    indented = [textwrap.dedent(block) for block in _INDENTED.findall(_FENCED.sub("", text))]
    return [line for block in (*plain, *indented) for line in block.splitlines() if _COMMAND.match(line)]


def inline_commands(page: Path) -> list[str]:
    """Return the commands in the sentences, tables and `sh` blocks of a page."""
    text = page.read_text()
    lines = [line for block in _FENCED.finditer(text) if block["head"] == "sh" for line in block["text"].splitlines()]
    inline = [" ".join(found.split()) for found in _INLINE.findall(_FENCED.sub("", text))]
    return [code for code in (*inline, *lines) if _COMMAND.match(code)]


def commands_in(test: Path) -> list[str]:
    """Return the commands that a test has as texts of their own."""
    texts = (node.value for node in ast.walk(ast.parse(test.read_text())) if isinstance(node, ast.Constant))
    return [text for text in texts if isinstance(text, str) and _COMMAND.match(text) and "\n" not in text]
