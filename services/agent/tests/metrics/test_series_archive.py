"""Time series over a restart: nothing wrong comes back, whatever happened to the files."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koord_agent.domain.metrics.metric_kinds import LABELS, Kind
from koord_agent.domain.metrics.series import SeriesStore
from koord_agent.shell.store.series_archive import SEGMENT_MS, SeriesArchive

START = 1_700_000_000_000
CYCLES = ("u", "containerd://c", "cycle")


def filled(folder: Path, minutes: int) -> tuple[SeriesStore, SeriesArchive, int]:
    """A store with a sample per second, saved every minute."""
    store, archive = SeriesStore(retention_ms=3_600_000), SeriesArchive(folder)
    archive.restore(store, START)
    now = START
    for _ in range(minutes * 60):
        now += 1_000
        store.append(Kind.NODE_CPU, now, now / 1e12)
        store.append(Kind.POD_CPU, now, 1.0, "u")
        store.append(Kind.CONTAINER_CPI, now, 2.0, CYCLES)
        if archive.is_due(now):
            assert archive.save(store, now) is None
    return store, archive, now


def test_a_restarted_agent_has_its_series_again(tmp_path: Path) -> None:
    before, archive, now = filled(tmp_path, 12)
    archive.save(before, now)
    after = SeriesStore(retention_ms=3_600_000)
    assert SeriesArchive(tmp_path).restore(after, now) == 3 * 12 * 60
    for kind, of in ((Kind.NODE_CPU, ""), (Kind.POD_CPU, "u"), (Kind.CONTAINER_CPI, CYCLES)):
        assert after.between(kind, START, now, of) == before.between(kind, START, now, of)


def test_a_process_that_is_killed_loses_a_minute_at_most(tmp_path: Path) -> None:
    _, _, now = filled(tmp_path, 5)
    after = SeriesStore(retention_ms=3_600_000)
    SeriesArchive(tmp_path).restore(after, now)
    newest = max(after.between(Kind.NODE_CPU, START, now).times_ms)
    assert now - newest <= 60_000


def test_what_the_store_does_not_keep_is_not_brought_back(tmp_path: Path) -> None:
    before, archive, now = filled(tmp_path, 12)
    archive.save(before, now)
    after = SeriesStore(retention_ms=3_600_000, object_retention_ms=60_000)
    SeriesArchive(tmp_path).restore(after, now)
    assert len(after.between(Kind.NODE_CPU, START, now).values) == 720
    assert len(after.between(Kind.POD_CPU, START, now, "u").values) == 61
    early = SeriesStore(retention_ms=3_600_000)
    SeriesArchive(tmp_path).restore(early, START + 300_000)
    assert max(early.between(Kind.NODE_CPU, START, now).times_ms) <= START + 300_000


@given(place=st.integers(0, 10_000), junk=st.binary(max_size=30))
def test_damaged_files_give_fewer_samples_never_wrong_ones(
    tmp_path_factory: pytest.TempPathFactory, place: int, junk: bytes
) -> None:
    folder = tmp_path_factory.mktemp("series")
    before, archive, now = filled(folder, 2)
    archive.save(before, now)
    (segment,) = folder.iterdir()
    data = segment.read_bytes()
    cut = place % len(data)
    segment.write_bytes(data[:cut] + junk + data[cut + len(junk) :])
    after = SeriesStore(retention_ms=3_600_000)
    SeriesArchive(folder).restore(after, now)
    expected = before.between(Kind.NODE_CPU, START, now)
    points = dict(zip(expected.times_ms, expected.values, strict=True))
    found = after.between(Kind.NODE_CPU, START, now)
    assert all(points[at] == value for at, value in zip(found.times_ms, found.values, strict=True))


def test_series_with_the_labels_of_another_version_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, now = filled(tmp_path, 2)
    labels = {**LABELS, Kind.POD_CPU: ("pod_uid", "cpu"), Kind.CONTAINER_CPI: ()}
    monkeypatch.setattr(f"{SeriesStore.__module__}.LABELS", labels)
    after = SeriesStore(retention_ms=3_600_000)
    SeriesArchive(tmp_path).restore(after, now)
    assert len(after.between(Kind.NODE_CPU, START, now).values) > 0
    assert len(after) == 1


def test_segments_beyond_retention_or_size_are_deleted(tmp_path: Path) -> None:
    store = SeriesStore(retention_ms=3_600_000)
    archive = SeriesArchive(tmp_path, retention_ms=2 * SEGMENT_MS, max_bytes=1 << 20)
    archive.restore(store, START)
    for segment in range(6):
        now = START + segment * SEGMENT_MS
        store.append(Kind.NODE_CPU, now, 1.0)
        archive.save(store, now)
    assert len(list(tmp_path.iterdir())) == 4
    small = SeriesArchive(tmp_path, max_bytes=1)
    small.restore(store, START)
    small.save(store, START + 6 * SEGMENT_MS)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    trouble = SeriesArchive(tmp_path / "file" / "below").save(SeriesStore(), START)
    assert trouble is not None
    assert "not stored" in trouble


def test_a_clock_set_back_does_not_keep_new_samples_out() -> None:
    store = SeriesStore()
    store.append(Kind.NODE_CPU, START + 3_600_000, 1.0)
    assert store.clock_set_back(START) == 1
    store.append(Kind.NODE_CPU, START, 2.0)
    assert store.last(Kind.NODE_CPU, START - 1, START) == 2.0
