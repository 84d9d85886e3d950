"""The queue on disk: whatever happens to the process or the end of the file, what was added before is there."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from koordcore.bus.queue_file import QueueFile


def reopened(path: Path) -> list[bytes]:
    queue = QueueFile(path)
    try:
        return [payload for _, payload in queue.items()]
    finally:
        queue.close()


@given(st.lists(st.one_of(st.binary(max_size=40), st.integers(0, 20)), max_size=30))
def test_what_was_added_and_not_removed_is_there_after_a_restart(steps: list[bytes | int]):
    with tempfile.TemporaryDirectory() as directory:
        check_steps(Path(directory) / "outbox", steps)


def check_steps(path: Path, steps: list[bytes | int]) -> None:
    queue = QueueFile(path)
    model: dict[int, bytes] = {}
    for step in steps:
        if isinstance(step, bytes):
            model[queue.add(step)] = step
        elif model:
            number = sorted(model)[step % len(model)]
            queue.remove(number)
            del model[number]
    assert reopened(path) == list(model.values())
    queue.close()


def test_a_record_cut_by_a_crash_is_dropped_and_the_file_goes_on(tmp_path: Path):
    path = tmp_path / "outbox"
    queue = QueueFile(path)
    queue.add(b"one")
    size = path.stat().st_size
    queue.add(b"two")
    queue.close()
    for cut in range(size, path.stat().st_size):
        with path.open("r+b") as file:
            file.truncate(cut)
        assert reopened(path) == [b"one"]
        assert path.stat().st_size == size
        queue = QueueFile(path)
        queue.add(b"two")
        queue.close()
        assert reopened(path) == [b"one", b"two"]


def test_a_flipped_byte_ends_the_file_there(tmp_path: Path):
    path = tmp_path / "outbox"
    queue = QueueFile(path)
    for payload in (b"one", b"two", b"three"):
        queue.add(payload)
    queue.close()
    data = bytearray(path.read_bytes())
    data[data.index(b"two")] ^= 1
    path.write_bytes(data)
    assert reopened(path) == [b"one"]


def test_the_file_does_not_grow_with_what_is_done(tmp_path: Path):
    queue = QueueFile(tmp_path / "outbox")
    kept = queue.add(b"kept")
    for _ in range(300):
        queue.remove(queue.add(b"x" * 10_000))
    assert (tmp_path / "outbox").stat().st_size < 2_000_000
    assert reopened(tmp_path / "outbox") == [b"kept"]
    queue.remove(kept)
    assert (tmp_path / "outbox").stat().st_size == 0
    queue.close()
