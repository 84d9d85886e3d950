"""What a shell offers for the values of parameters: kinds, names, outputs.

A parameter has one of these functions by its name (`OF_COMMANDS`, `OF_PARAMETERS`), or names it (`autocompletion=`).
`sketches.json` keeps the name of the function, and the sketches call it, so completion loads no command. Names come
from the manager; without an answer within a second, nothing is offered.
"""

import contextlib
import json
from collections.abc import Iterable
from importlib.resources import files
from typing import Any, Final

OUTPUTS: Final = ("table", "wide", "yaml", "json", "name")
SECONDS: Final = 1.0
MOST: Final = 500
"""Names that are offered at most."""
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
        kind = incomplete.partition("/")[0]
        return _beginning((f"{kind}/{name}" for name in _names(kind)), incomplete)
    if args and "/" not in args[0]:
        return _beginning((name for kind in args[0].split(",") for name in _names(kind)), incomplete)
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{kind}" for kind in _beginning(_plurals(), last)]


def pods(incomplete: str) -> list[str]:
    return _beginning(_names("pod"), incomplete)


def nodes(incomplete: str) -> list[str]:
    return _beginning(_names("node"), incomplete)


def namespaces(incomplete: str) -> list[str]:
    found = {str(item["metadata"].get("namespace", "default")) for item in _items("Pod")}
    return _beginning({*found, *_names("namespace")}, incomplete)


def reservations(incomplete: str) -> list[str]:
    return _beginning(_names("reservation"), incomplete)


def migrations(incomplete: str) -> list[str]:
    return _beginning(_names("migration"), incomplete)


def gangs(incomplete: str) -> list[str]:
    return _beginning(_names("podgroup"), incomplete)


def _beginning(texts: Iterable[str], incomplete: str) -> list[str]:
    return sorted({text for text in texts if text.startswith(incomplete)})[:MOST]


def kind_words() -> dict[str, str]:
    """Word -> kind, without the definitions of the custom resources, which take longer than a completion may."""
    return json.loads(files("koordctl").joinpath("kinds.json").read_bytes())


def _plurals() -> list[str]:
    """The longest word of each kind, which is its plural."""
    found: dict[str, str] = {}
    for word, kind in kind_words().items():
        found[kind] = max(found.get(kind, ""), word, key=len)
    return [*found.values(), "all"]


def _names(word: str) -> list[str]:
    kind = kind_words().get(word.lower())
    return [str(item["metadata"]["name"]) for item in _items(kind)] if kind else []


def _items(kind: str) -> list[dict[str, Any]]:
    from koordctl.access.clients import ask, find_service

    # A shell has no place for an error: no file with a token, half a state file, or what is no answer of a manager.
    with contextlib.suppress(Exception):
        url = find_service("manager")
        answer = ask(f"{url}/v1/objects/{kind}", timeout=SECONDS)
        return answer.json()["items"] if answer.is_success else []
    return []
