"""Archive of time series over a restart: every minute, new samples are appended to segment files.

    folder/<start of the segment, ms>.series    records: length, crc32, zlib(msgpack [[kind, labels, times,
    values]..])

Reading a segment stops at a damaged record. A segment is deleted if all of it is older than the retention, or if the
files together exceed the size limit.

Source: agent spec, 5 (storage, retention, size).
"""

import struct
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.series import (
    DEFAULT_MAX_BYTES,
    DEFAULT_RETENTION_MS,
    Of,
    Points,
    SeriesStore,
    require_labels,
)

SAVE_EVERY_MS: Final = 60_000
SEGMENT_MS: Final = 600_000
_SUFFIX: Final = ".series"
_HEAD: Final = struct.Struct("<II")
_LARGEST_RECORD: Final = 256 * 1024 * 1024
_COMPRESSION: Final = 1


class _Kept(msgspec.Struct, array_like=True):
    kind: str
    labels: str | list[str]
    times: bytes
    values: bytes


class SeriesArchive:
    """Keeps the time series of one node over a restart. Only the node's agent uses it.

    Files are deleted above an age of `retention_ms`, and the oldest if all are larger than `max_bytes`.
    """

    def __init__(
        self, folder: Path, *, retention_ms: int = DEFAULT_RETENTION_MS, max_bytes: int = DEFAULT_MAX_BYTES
    ) -> None:
        self._folder = folder
        self._retention_ms = retention_ms
        self._max_bytes = max_bytes
        self._saved_ms: int | None = None
        self._segment: Path | None = None
        self._segment_ms = 0

    def restore(self, store: SeriesStore, now_ms: int) -> int:
        """Load the stored samples into new time series, and return their number.

        Samples older than the retention of the store are left out, and so are samples of the future, which exist if the
        clock was set back. Series are left out if another version of the agent gave them other labels.

        Raises:
            OSError: The folder cannot be created.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        restored = 0
        for segment in self._segments():
            for kind, of, points in _records(segment):
                retention_ms = store.retention_ms if of == "" else store.object_retention_ms
                for at_ms, value in zip(points.times_ms, points.values, strict=True):
                    if now_ms - retention_ms <= at_ms <= now_ms:
                        store.append(kind, at_ms, value, of)
                        restored += 1
        self._saved_ms = now_ms
        return restored

    def is_due(self, now_ms: int) -> bool:
        """A minute after the last save. A clock that is set back does not delay it."""
        return self._saved_ms is None or not 0 <= now_ms - self._saved_ms < SAVE_EVERY_MS

    def save(self, store: SeriesStore, now_ms: int) -> str | None:
        """Append the samples since the last save to the file. Return a sentence if the disk failed, otherwise None.

        Samples that the disk refused are not saved later; the series in memory keep them.
        """
        since = self._saved_ms if self._saved_ms is not None and self._saved_ms <= now_ms else now_ms - SAVE_EVERY_MS
        kept = [
            _Kept(
                kind,
                of if isinstance(of, str) else list(of),
                array("q", points.times_ms).tobytes(),
                array("d", points.values).tobytes(),
            )
            for kind, of, points in store.newer_than(since)
        ]
        self._saved_ms = now_ms
        body = zlib.compress(msgspec.msgpack.encode(kept), _COMPRESSION)
        try:
            if self._segment is None or not 0 <= now_ms - self._segment_ms < SEGMENT_MS:
                self._segment, self._segment_ms = self._folder / f"{now_ms:015d}{_SUFFIX}", now_ms
                self._tidy(now_ms)
            with self._segment.open("ab") as stream:
                stream.write(_HEAD.pack(len(body), zlib.crc32(body)) + body)
        except OSError as error:
            self._segment = None
            return f"time series are not stored: {error.strerror}"
        return None

    def _segments(self) -> list[Path]:
        return sorted(file for file in self._folder.glob(f"*{_SUFFIX}") if file.stem.isdecimal())

    def _tidy(self, now_ms: int) -> None:
        segments = self._segments()
        sizes = {segment: segment.stat().st_size for segment in segments}
        total = sum(sizes.values())
        for segment in segments:
            if int(segment.stem) + SEGMENT_MS >= now_ms - self._retention_ms and total <= self._max_bytes:
                break
            segment.unlink(missing_ok=True)
            total -= sizes[segment]


def _records(segment: Path) -> Iterator[tuple[Kind, Of, Points]]:
    try:
        data = segment.read_bytes()
    except OSError:
        return
    place = 0
    while place + _HEAD.size <= len(data):
        length, checksum = _HEAD.unpack_from(data, place)
        body = data[place + _HEAD.size : place + _HEAD.size + length]
        if length > _LARGEST_RECORD or len(body) < length or zlib.crc32(body) != checksum:
            return
        place += _HEAD.size + length
        try:
            kept = msgspec.msgpack.decode(zlib.decompress(body), type=list[_Kept])
        except (zlib.error, msgspec.DecodeError):
            return
        for one in kept:
            if one.kind in set(Kind):
                times, values = array("q", one.times), array("d", one.values)
                of: Of = one.labels if isinstance(one.labels, str) else tuple(one.labels)
                try:
                    require_labels(Kind(one.kind), of)
                except InvalidInput:
                    continue
                yield Kind(one.kind), of, Points(times_ms=times, values=values)
