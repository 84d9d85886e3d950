"""Kinds and names of objects as they are written on the command line: `pods`, `po,no`, `pod/web`, `all`."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple

from koordctl.render.output import fail

KINDS = {
    "pod": "Pod", "po": "Pod", "node": "Node", "no": "Node", "configmap": "ConfigMap", "cm": "ConfigMap",
    "namespace": "Namespace", "ns": "Namespace", "priorityclass": "PriorityClass", "pc": "PriorityClass",
    "deployment": "Deployment", "deploy": "Deployment", "job": "Job",
}  # fmt: skip
SHORT = {
    "quota": "ElasticQuota", "eq": "ElasticQuota", "profile": "ClusterColocationProfile", "resv": "Reservation",
    "pg": "PodGroup", "gang": "PodGroup", "migration": "PodMigrationJob", "drain": "DrainNode",
}  # fmt: skip
"""Short names of our own, in addition to those of the resource definitions."""
ALL: Final = ("Pod", "Service", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet", "Job")
"""What `all` means, as in kubectl."""
_ELSEWHERE: Final = {"event": "koord events", "ev": "koord events", "log": "kubectl logs"}
"""What is no kind here -> the command that shows it."""


class Target(NamedTuple):
    kind: str
    name: str | None  # None: all objects of the kind


def kind_named(text: str) -> str:
    """Return the kind that a word on the command line names, for example Pod for `pods`, `po` or `Pod`.

    An unknown word ends the command with an error.
    """
    lower = text.lower()
    found = KINDS.get(lower) or KINDS.get(lower.removesuffix("s")) or KINDS.get(lower.removesuffix("es"))
    found = found or SHORT.get(lower) or SHORT.get(lower.removesuffix("s"))
    if found is not None:
        return found
    if command := _ELSEWHERE.get(lower) or _ELSEWHERE.get(lower.removesuffix("s")):
        return fail(f"there is no kind {text!r} here; did you mean `{command}`?", status=2)
    from koordcore.protocol.crd import accepted_kinds  # only now: it reads the definitions of all custom resources

    kinds = accepted_kinds()
    for resource in kinds:
        plain = lower.removesuffix(f".{resource.group}")
        if plain in (resource.kind.lower(), resource.plural, *resource.short_names):
            return resource.kind
    known = {kind.lower() for kind in (*KINDS.values(), *(resource.kind for resource in kinds))}
    meant = get_close_matches(lower, known, 1)
    hint = f"; did you mean {meant[0]}?" if meant else ""
    return fail(f"unknown kind {text!r}{hint} (`koord get <TAB>` or `koord get --help` lists the kinds)", status=2)


def targets_of(words: Sequence[str]) -> list[Target]:
    """What `KIND[,KIND] [NAME ...]`, `KIND/NAME ...` or `all` name. Wrong usage ends the command with an error."""
    if any("/" in word for word in words):
        pairs = [word.split("/") for word in words]
        for word, pair in zip(words, pairs, strict=True):
            if len(pair) != 2 or not all(pair):
                fail(f"must be KIND/NAME, as the others, got {word!r}", status=2)
        return [Target(kind_named(kind), name) for kind, name in pairs]
    if not words:
        fail("name what is meant: KIND, KIND NAME, or KIND/NAME", status=2)
    kinds = list(ALL) if words[0].lower() == "all" else [kind_named(kind) for kind in words[0].split(",") if kind]
    return [Target(kind, name) for kind in dict.fromkeys(kinds) for name in words[1:] or [None]]


def plural(kind: str) -> str:
    """The word for several objects of a kind, in small letters."""
    lower = kind.lower()
    if lower.endswith(("s", "x", "ch", "sh")):
        return f"{lower}es"
    return f"{lower[:-1]}ies" if lower.endswith("y") and lower[-2:-1] not in "aeiou" else f"{lower}s"


def name_of_kind(word: str, kind: str) -> str:
    """The name in `NAME` or `KIND/NAME`. Another kind than `kind` ends the command with an error."""
    before, slash, name = word.rpartition("/")
    if slash and kind_named(before) != kind:
        fail(f"must be the name of a {kind}, got {word!r}", status=2)
    return name
