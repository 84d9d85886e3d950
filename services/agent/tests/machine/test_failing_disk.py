"""A state folder that cannot be written costs what would have been kept, never the protection of the node."""

import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from koord_agent.shell.store.local_store import LocalStore
from koordcore.events.envelope import AggregateRef
from koordcore.ports.desired import DesiredNode
from koordcore.service.outbox import NotStored

NODE = AggregateRef("nodestate", "n")
WANTED = DesiredNode(node="n", pods=[], slo={}, capacity={}, allocatable={})


@contextmanager
def full_disk() -> Generator[None]:
    """No file of this process may grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_a_full_disk_did_not_take_is_told_and_taken_once_there_is_room(tmp_path: Path) -> None:
    kept = LocalStore(tmp_path)
    with full_disk():
        with pytest.raises(NotStored):
            kept.add([(NODE, {}, b"x" * 100_000)], started={"n": ["u-1"]}, stopped={})
        with pytest.raises(NotStored):
            kept.save_desired([WANTED], 1_000)
    assert kept.facts() == []
    assert kept.announced() == {}
    (fact,) = kept.add([(NODE, {}, b"x")], started={"n": ["u-1"]}, stopped={})
    kept.save_desired([WANTED], 1_000)
    assert kept.facts() == [fact]
    assert kept.desired(2_000, 60_000)[0] == {"n": WANTED}
    kept.close()


def test_a_folder_that_cannot_be_used_leaves_the_state_in_memory_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("not a folder")
    kept = LocalStore(tmp_path / "state")
    assert kept.unusable
    kept.save_desired([WANTED], 1_000)
    assert kept.desired(2_000, 60_000)[0] == {"n": WANTED}
    kept.close()


def test_a_sound_file_is_not_set_aside_because_the_disk_is_full(tmp_path: Path) -> None:
    kept = LocalStore(tmp_path)
    kept.save_desired([WANTED], 1_000)
    kept.close()
    with full_disk():
        kept = LocalStore(tmp_path)
        assert kept.set_aside is None
        kept.close()
    kept = LocalStore(tmp_path)
    assert kept.desired(2_000, 60_000)[0] == {"n": WANTED}
    kept.close()


def test_a_file_that_is_damaged_further_on_is_set_aside(tmp_path: Path) -> None:
    kept = LocalStore(tmp_path)
    for number in range(200):
        kept.add([(NODE, {}, b"x" * 500)], started={"n": [f"u-{number}"]}, stopped={})
    kept.close()
    file = tmp_path / "agent.sqlite"
    data = bytearray(file.read_bytes())
    data[8192:] = b"\xff" * len(data[8192:])
    file.write_bytes(data)

    kept = LocalStore(tmp_path)

    assert kept.set_aside == tmp_path / "agent.damaged"
    assert kept.facts() == []
    assert kept.announced() == {}
    kept.close()
