"""Digests of the rows of tables, which do not depend on their order: so no row is kept, and no second table is needed.

    digest of a block = number of its rows, and the sum of the hashes of their lines

A line is that of COPY's text format. Postgres writes the rows of a table as such lines, and the fold makes the same
ones (`store.copytext`). Rows belong to blocks of 1,000 positions, so that a difference is located.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from koord_projector.fold.projection import Changes
from koord_projector.store import copytext

BLOCK: Final = 1_000
_MODULUS: Final = 1 << 128
_CONTROL: Final = re.compile(rb"[\x08\x0b\x0c]")
_ESCAPED: Final = {b"\x08": rb"\b", b"\x0b": rb"\v", b"\x0c": rb"\f"}
_NULL: Final = rb"\N"

Digest = tuple[int, bytes]
"""Number of rows of a block, and the sum of the hashes of their lines, 16 bytes."""
Digests = dict[str, dict[int, Digest]]
"""Table -> block -> its digest."""


class ComparedColumns(NamedTuple):
    """How a table is compared."""

    columns: Sequence[str]
    position: int  # Number of the column with the position to which a row belongs; -1: none
    # Condition on the rows that a projector keeps which has dropped the facts up to a position (`retention`); "": all
    kept: str = ""


TABLES: Final[Mapping[str, ComparedColumns]] = {
    "aggregates": ComparedColumns(copytext.AGGREGATE_COLUMNS, 2),
    "aggregate_lives": ComparedColumns(copytext.LIFE_COLUMNS, 3, "to_seq > {end}"),
    "aggregate_versions": ComparedColumns(copytext.VERSION_COLUMNS, 2, "seq > {end}"),
    "modifications": ComparedColumns(copytext.MODIFICATION_COLUMNS, 0, "position > {end}"),
    "pods": ComparedColumns(copytext.POD_COLUMNS, 1, "(to_seq IS NULL OR to_seq > {end})"),
    "node_versions": ComparedColumns(copytext.NODE_COLUMNS, 0, "seq > {end}"),
    "node_names": ComparedColumns(("token",), -1),
    "cluster_series": ComparedColumns(copytext.SERIES_COLUMNS, 1, "seq > {end}"),
}
"""The tables that are folded from facts, but `events`."""
EVENTS: Final = ComparedColumns(copytext.EVENT_COLUMNS, 0)


def line_hash(line: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(line, digest_size=16).digest(), "big")


def as_copied(line: bytes) -> bytes:
    """Return a line without its line feed as Postgres writes it: it also escapes these three control characters."""
    line = line.removesuffix(b"\n")
    return _CONTROL.sub(lambda found: _ESCAPED[found[0]], line) if _CONTROL.search(line) else line


class BlockDigests:
    """The digests of one table. `position`: number of the column with the position."""

    def __init__(self, position: int) -> None:
        self._position = position
        self._blocks: dict[int, list[int]] = {}

    def add(self, line: bytes) -> None:
        """`line`: as Postgres writes it, without a line feed."""
        at = self._position
        block = int(line.split(b"\t", at + 1)[at]) // BLOCK if at >= 0 else 0
        self.add_hash(block, line_hash(line))

    def add_hash(self, block: int, hashed: int) -> None:
        entry = self._blocks.setdefault(block, [0, 0])
        entry[0] += 1
        entry[1] = (entry[1] + hashed) % _MODULUS

    def blocks(self) -> dict[int, Digest]:
        return {block: (count, total.to_bytes(16, "big")) for block, (count, total) in self._blocks.items()}


def rows_in(blocks: Mapping[int, Digest]) -> int:
    return sum(count for count, _ in blocks.values())


def difference(found: Mapping[int, Digest], expected: Mapping[int, Digest]) -> str:
    """Return where a table differs first from what the log gives, one sentence; "" if it does not."""
    differing = [block for block in sorted({*found, *expected}) if found.get(block) != expected.get(block)]
    if not differing:
        return ""
    first = differing[0]
    have, must = found.get(first, (0, b""))[0], expected.get(first, (0, b""))[0]
    rows = f"{have} rows, must be {must}" if have != must else f"some of {must} rows have another content"
    more = f", and {len(differing) - 1} further blocks differ" if len(differing) > 1 else ""
    return f"at positions {first * BLOCK} to {(first + 1) * BLOCK - 1}: {rows}{more}"


class FoldedDigests:
    """The digests of what the fold gives. It takes `Changes` in the order of the log, as tables do.

    `end`: position up to which facts were dropped; rows that need no later fact are left out.
    """

    def __init__(self, end: int) -> None:
        self._end = end
        self._digests = {table: BlockDigests(each.position) for table, each in TABLES.items()}
        self._tokens: set[str] = set()
        self._seconds: dict[int, tuple[int, int]] = {}
        """Second -> position and hash of its newest row in `cluster_series`."""

    def add(self, changes: Changes) -> None:
        for table, _, lines in copytext.added_rows(changes):
            if table != "node_versions":
                self._add(table, lines)
        self._add("node_versions", map(copytext.node_line, changes.nodes))
        self._add("pods", map(copytext.pod_line, changes.pods))
        self._tokens.update(change.token for change in changes.nodes)
        for row in changes.series:
            self._seconds[row.second] = row.seq, line_hash(as_copied(copytext.series_line(row)))

    def finish(self) -> Digests:
        """Call it once, after the last changes."""
        self._add("node_names", (copytext.escape(token).encode("utf-8", "replace") for token in self._tokens))
        for seq, hashed in self._seconds.values():
            if seq > self._end:
                self._digests["cluster_series"].add_hash(seq // BLOCK, hashed)
        return {table: each.blocks() for table, each in self._digests.items()}

    def _add(self, table: str, lines: Iterable[bytes]) -> None:
        digest, is_kept = self._digests[table], _KEPT.get(table)
        for line in lines:
            if self._end and is_kept is not None and not is_kept(line, self._end):
                continue
            digest.add(as_copied(line))


def _above(column: int) -> Callable[[bytes, int], bool]:
    def is_above(line: bytes, end: int) -> bool:
        value = line.split(b"\t", column + 1)[column]
        return value == _NULL or int(value) > end

    return is_above


_KEPT: Final[Mapping[str, Callable[[bytes, int], bool]]] = {
    "aggregate_lives": _above(3),
    "aggregate_versions": _above(2),
    "modifications": _above(0),
    "pods": _above(2),
    "node_versions": _above(0),
}
"""The conditions of `TABLES` on lines."""
