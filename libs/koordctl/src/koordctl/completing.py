"""What a shell offers for the values of parameters: kinds, names, outputs.

A parameter has one of these functions by its name (`OF_COMMANDS`, `OF_PARAMETERS`), or names it (`autocompletion=`).
`sketches.json` keeps the name of the function, and the sketches call it, so completion loads no command. Names come
from the manager; without an answer within a second, nothing is offered.
"""

import contextlib
import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from threading import Event, Thread
from typing import Final
from urllib.parse import urlencode

OUTPUTS: Final = ("table", "wide", "yaml", "json", "name")
SECONDS: Final = 1.0
OF_COMMANDS: Final = {
    "pod": "pods",
    "node": "nodes",
    "reservation": "reservations",
    "migration": "migrations",
    "gang": "gangs",
}
"""Command with an argument `name` -> function that offers its values."""
OF_PARAMETERS: Final = {"namespace": "namespaces", "node": "nodes", "nodes": "nodes"}
"""Parameter -> function that offers its values, in every command."""


def outputs(incomplete: str) -> list[str]:
    return _beginning((*OUTPUTS, "jsonpath="), incomplete)


def kinds_and_names(args: list[str], incomplete: str) -> list[str]:
    """`args`: the words of the command before the incomplete one, without its options."""
    if "/" in incomplete:
        kind, _, name = incomplete.partition("/")
        return [f"{kind}/{each}" for each in _names([kind], name)]
    if args and "/" not in args[0]:
        return _names(args[0].split(","), incomplete)
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{kind}" for kind in _beginning(_plurals(), last)]


def pods(incomplete: str) -> list[str]:
    return _names(["pod"], incomplete)


def nodes(incomplete: str) -> list[str]:
    return _names(["node"], incomplete)


def namespaces(incomplete: str) -> list[str]:
    """Also those that have pods and no object of their own."""
    return _answered([_question("Namespace", incomplete), _question("Pod", incomplete, "namespace")])


def reservations(incomplete: str) -> list[str]:
    return _names(["reservation"], incomplete)


def migrations(incomplete: str) -> list[str]:
    return _names(["migration"], incomplete)


def gangs(incomplete: str) -> list[str]:
    return _names(["podgroup"], incomplete)


def _beginning(texts: Iterable[str], incomplete: str) -> list[str]:
    return sorted({text for text in texts if text.startswith(incomplete)})


def kind_words() -> dict[str, str]:
    """Word -> kind, without the definitions of the custom resources, which take longer than a completion may."""
    return json.loads(files("koordctl").joinpath("kinds.json").read_bytes())


def _plurals() -> list[str]:
    """The longest word of each kind, which is its plural."""
    found: dict[str, str] = {}
    for word, kind in kind_words().items():
        found[kind] = max(found.get(kind, ""), word, key=len)
    return [*found.values(), "all"]


def _names(words: Sequence[str], beginning: str) -> list[str]:
    """The names of the objects of some kinds that begin so."""
    known = kind_words()
    kinds = [known[word.lower()] for word in words if word.lower() in known]
    return _answered([_question(kind, beginning) for kind in kinds])


def _question(kind: str, beginning: str, field: str = "name") -> str:
    return f"/v1/names/{kind}?{urlencode({'prefix': beginning, 'field': field})}"


def _answered(paths: Sequence[str]) -> list[str]:
    """The names in the manager's answers; none without all answers within `SECONDS`."""
    from koordctl.access.clients import ask, find_service

    found: set[str] = set()
    is_done = Event()

    def ask_all() -> None:
        # A shell has no place for an error: no file with a token, half a state file, or what is no answer of a manager.
        with contextlib.suppress(Exception):
            url = find_service("manager")
            for path in paths if url else ():
                answer = ask(f"{url}{path}", timeout=SECONDS)
                found.update(answer.json()["names"] if answer.is_success else ())
        is_done.set()

    # A time-out of the connection is one for each read: a slow sender would hold the shell as long as it likes.
    Thread(target=ask_all, daemon=True).start()
    return sorted(found) if is_done.wait(SECONDS) else []
