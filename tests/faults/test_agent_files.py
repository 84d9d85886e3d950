"""The agent's file of facts and desired states is damaged: what it still has is what was stored.

A fact or a desired state that was stored is still there, or is left out with a word, or the whole file was set aside,
which the agent says at its start. Nothing is there with another content. A start of a pod that it has forgotten is
published again.
"""

import random
import shutil
from pathlib import Path
from typing import Final

import pytest
from koord_agent.shell.store.local_store import LocalStore
from koordcore.events.envelope import AggregateRef, Origin
from koordcore.events.nodestate import PodsStarted
from koordcore.ports.desired import DesiredNode
from koordcore.service.outbox import sealed
from support.depth import repeats
from support.faults.block_files import ON_ONE_FILE, flip_bit

FACTS: Final = 60
NODES: Final = 8
FILE: Final = "agent.sqlite"
FLIPS: Final = repeats(400)
ORIGIN: Final = Origin(causation_id="c", correlation_id="x", actor="test/1", occurred_at="2026-01-01T00:00:00.000000Z")
DESIRED: Final = [DesiredNode(node=f"n{n}", as_of={"node": n + 1}, labels={"l": "x" * 200}) for n in range(NODES)]


class Content:
    """What a store has, in a form that can be compared."""

    def __init__(self, folder: Path) -> None:
        store = LocalStore(folder)
        self.is_set_aside = store.set_aside is not None
        self.unusable = store.unusable
        try:
            self.facts = [(fact.ref, tuple(sorted(fact.headers.items())), fact.body) for fact in store.facts()]
            self.desired, self.problems = store.desired(0, 1e12)
        finally:
            store.close()


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Path, Content]:
    """A folder with a store, and its content."""
    folder = tmp_path / "stored"
    store = LocalStore(folder)
    for number in range(FACTS):
        ref, node = AggregateRef("nodestate", f"n{number % NODES}"), f"n{number % NODES}"
        fact = sealed(ref, PodsStarted(pods=[f"uid-{number}-{index}" for index in range(20)]), ORIGIN)
        store.add([fact], started={node: [f"uid-{number}"]}, stopped={})
    store.save_desired(DESIRED, 0)
    store.close()
    return folder, Content(folder)


def require_nothing_false(folder: Path, before: Content, what: str) -> None:
    """Open the damaged store, and compare it with what was stored."""
    after = Content(folder)
    if after.is_set_aside or after.unusable:
        return
    assert after.facts == before.facts, f"{what}: facts differ, and nothing was said"
    assert all(before.desired[node] == value for node, value in after.desired.items()), what
    assert len(after.desired) + len(after.problems) == NODES, what


@pytest.mark.parametrize("fault", ON_ONE_FILE)
def test_a_damaged_store_has_what_was_stored_or_says_that_it_has_not(
    stored: tuple[Path, Content], tmp_path: Path, fault: str
) -> None:
    source, before = stored
    for name in sorted(path.name for path in source.iterdir()):
        folder = shutil.copytree(source, tmp_path / fault / name)
        ON_ONE_FILE[fault](folder / name)
        if fault == "delete" and name == FILE:
            continue  # an empty folder is a new agent
        require_nothing_false(folder, before, f"{fault}: {name}")


@pytest.mark.fuzz
def test_a_flipped_bit_in_a_store_changes_no_fact(stored: tuple[Path, Content], tmp_path: Path) -> None:
    source, before = stored
    rng = random.Random(1)
    for number in range(FLIPS):
        folder = shutil.copytree(source, tmp_path / f"flip-{number}")
        share = rng.random()
        flip_bit(folder / FILE, share=share)
        require_nothing_false(folder, before, f"flip at {share}")
        shutil.rmtree(folder)
