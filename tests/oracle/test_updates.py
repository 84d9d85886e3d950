"""Changes of stored pods: what `koord apply` refuses, as the API server's own code has it."""

from copy import deepcopy
from typing import Any, cast

import pytest
from koordcore.protocol.manifests import InvalidManifest, check_manifest, check_update, shape_manifest
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_defaults import with_pod_defaults
from support.oracle.drawing.dice import Dice
from support.oracle.drawing.edits import EDITS
from support.oracle.drawing.pods import pod
from support.oracle.lines import Document
from support.oracle.program import Oracle

pytestmark = pytest.mark.oracle

WANTED = {"restart policy": "a stored pod does not keep its policy, which decides nothing here"}
"""Edits of which our verdict differs, and why it stays."""

PODS = 60


@pytest.fixture(scope="module")
def stored(oracle: Oracle) -> list[Document]:
    """Valid pods with defaults. Every second one has one to three gates."""
    documents = [pod(Dice(number), f"p{number}") for number in range(PODS)]
    for number, document in enumerate(documents):
        gates = [{"name": name} for name in ("example.com/a", "b", "c")[: number % 4 if number % 2 else 0]]
        document["spec"]["schedulingGates"] = gates
    tried = oracle.ask({"nodes": [], "try": documents}).tried
    return [with_pod_defaults(one) for one, answer in zip(documents, tried, strict=True) if answer.pod is not None]


def ours(old: Document, new: Document) -> list[str]:
    try:
        manifest = shape_manifest(with_pod_defaults(new))
        check_manifest(manifest)
        check_update(cast("Pod", manifest.object).spec, cast("Pod", shape_manifest(old).object).spec)
    except InvalidManifest as error:
        return [str(violation) for violation in error.violations]
    return []


def _of(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.xfail(reason=WANTED[name], strict=True)) if name in WANTED else name


@pytest.mark.parametrize("name", list(map(_of, EDITS)))
def test_changes_are_refused_as_by_an_api_server(oracle: Oracle, stored: list[Document], name: str) -> None:
    updates: list[Document] = []
    for old in stored:
        new = deepcopy(old)
        EDITS[name](new)
        updates.append({"old": old, "new": new})
    for update, theirs in zip(updates, oracle.ask({"nodes": [], "updates": updates}).updated, strict=True):
        mine = ours(update["old"], update["new"])
        assert bool(mine) == bool(theirs), f"ours: {mine}\nAPI server: {theirs}\n{update}"
