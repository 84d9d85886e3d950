r"""Rows as lines of COPY's text format, created by hand for speed.

Columns are separated by tabs; NULL is `\\N`; backslash, tab, line feed and carriage return inside a column
are escaped. NUL cannot be stored and becomes U+FFFD. Integers are clamped to the range of `bigint`.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from koordcore.events import envelope
from koordcore.stories.modifications import Modification
from psycopg import AsyncCursor
from psycopg.rows import TupleRow

from koord_projector.fold.figures import NodeChange, NodeFigures, SeriesRow, Totals
from koord_projector.fold.lives import EndedLife, Version, span_of
from koord_projector.fold.pods import Episode, Phase
from koord_projector.fold.projection import AggregateRow, Changes

INT_MAX = 2**63 - 1
SCHEMA_MAX = 2**31 - 1
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\0": "\ufffd"})
_encode_json = msgspec.json.Encoder().encode

EVENT_COLUMNS = (
    "seq", "kind", "id", "stored_at_ns",
    "event_id", "type", "schema", "causation_id", "correlation_id", "actor", "epoch", "occurred_at", "based_on",
    "traceparent", "body", "reached_ns",
)  # fmt: skip
"""Columns of `events` in the order of their lines. Those of headers are in the order of `HeaderTexts`."""
AGGREGATE_COLUMNS = ("kind", "id", "seq", "state", "from_seq", "events")
LIFE_COLUMNS = ("kind", "id", "from_seq", "to_seq", "span")
VERSION_COLUMNS = ("kind", "id", "seq", "state")
MODIFICATION_COLUMNS = (
    "position", "number", "at", "action", "decision", "namespace", "pod", "uid", "node", "job", "plugin", "reasons",
    "record",
)  # fmt: skip
POD_COLUMNS = (
    "uid", "from_seq", "to_seq", "namespace", "name", "qos", "priority_class", "requests", "submitted_seq",
    "submitted_at", "node", "placed_seq", "placed_at", "started_seq", "started_at", "stopped_seq", "deleted_seq",
    "gang", "span",
)  # fmt: skip
NODE_COLUMNS = ("seq", "token", *NodeFigures.__struct_fields__)
SERIES_COLUMNS = ("second", "seq", *Totals.__struct_fields__, *(f"pods_{phase}" for phase in Phase))
_COMMA_AS_TAB = bytes.maketrans(b",", b"\t")
_DIGITS_AS_0 = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19
"""Shorter numbers fit into `bigint`. Some of this length do not."""
_UNSAFE = re.compile(r"[\\\t\n\r\0]")


def escape(text: str) -> str:
    """NUL becomes U+FFFD."""
    return text.translate(_ESCAPES) if _UNSAFE.search(text) else text


def escape_bytes(text: bytes) -> bytes:
    """UTF-8 text without NUL."""
    if b"\\" in text:
        text = text.replace(b"\\", b"\\\\")
    if b"\n" in text:
        text = text.replace(b"\n", b"\\n")
    if b"\t" in text:
        text = text.replace(b"\t", b"\\t")
    if b"\r" in text:
        text = text.replace(b"\r", b"\\r")
    return text


def clamp(number: int) -> int:
    """The nearest integer of the range of Postgres' `bigint`."""
    return number if -INT_MAX <= number <= INT_MAX else (INT_MAX if number > 0 else -INT_MAX)


def line_of(values: Iterable[str | int | bool | None]) -> bytes:
    return ("\t".join(map(column_of, values)) + "\n").encode("utf-8", "replace")


def column_of(value: str | int | bool | None) -> str:
    if isinstance(value, str):
        return value if value.isalnum() else value.translate(_ESCAPES)
    if value is None:
        return "\\N"
    if value is True or value is False:
        return "t" if value else "f"
    return str(value) if -INT_MAX <= value <= INT_MAX else str(clamp(value))


class EventLines:
    """Makes the lines of facts, which follow each other. One task uses it.

    Args:
        reached_ns: Greatest time at which the server stored a fact before, in nanoseconds since 1970.
    """

    def __init__(self, reached_ns: int = 0) -> None:
        self._reached_ns = reached_ns

    def __call__(self, event: envelope.StoredEvent) -> bytes:
        self.pass_over(event.stored_at_ns)
        return event_line(event, self._reached_ns)

    def pass_over(self, stored_at_ns: int) -> None:
        """A fact that gets no line was stored at this time."""
        self._reached_ns = max(self._reached_ns, stored_at_ns)


def event_line(event: envelope.StoredEvent, reached_ns: int) -> bytes:
    """`reached_ns`: greatest time of storing of this fact and all before it."""
    if usual := event.header_texts():
        kind, id_ = event.ref
        headers = "\t".join(usual)
        columns = f"{event.seq}\t{kind}\t{escape(id_)}\t{event.stored_at_ns}\t{headers}\t"
        return columns.encode("utf-8", "replace") + escape_bytes(event.body) + b"\t%d\n" % reached_ns
    header = event.headers.get
    texts = (
        event.ref.kind,
        event.ref.id,
        str(event.stored_at_ns),
        header(envelope.HEADER_ID, ""),
        header(envelope.HEADER_TYPE, ""),
        str(min(event.schema, SCHEMA_MAX)),
        header(envelope.HEADER_CAUSATION, ""),
        header(envelope.HEADER_CORRELATION, ""),
        header(envelope.HEADER_ACTOR, ""),
        str(event.epoch),
        header(envelope.HEADER_OCCURRED_AT, ""),
        str(clamp(event.based_on)),
        header(envelope.HEADER_TRACEPARENT, ""),
    )
    line = "\t".join(texts)
    # Searches for one character each are faster than an expression.
    if line.count("\t") != len(texts) - 1 or "\\" in line or "\n" in line or "\r" in line or "\0" in line:
        line = "\t".join(map(escape, texts))
    return f"{event.seq}\t{line}\t".encode("utf-8", "replace") + escape_bytes(event.body) + b"\t%d\n" % reached_ns


def canonical_event_line(event: envelope.StoredEvent, reached_ns: int) -> bytes:
    """As `event_line`, with numbers as Postgres writes them, also if a writer sent them with zeros before."""
    usual = event.header_texts()
    if usual is not None and any(
        each[:1] == "0" and len(each) > 1 for each in (usual.schema, usual.epoch, usual.based_on)
    ):
        event = event.with_parsed_headers()
    return event_line(event, reached_ns)


def aggregate_line(row: AggregateRow) -> bytes:
    life = f"\t{row.life.from_seq}\t{row.life.events}\n".encode()
    return f"{row.ref.kind}\t{escape(row.ref.id)}\t{row.seq}\t".encode() + escape_bytes(row.state) + life


def life_line(life: EndedLife) -> bytes:
    ref, span = life.ref, span_of(life.from_seq, life.to_seq)
    return f"{ref.kind}\t{escape(ref.id)}\t{life.from_seq}\t{life.to_seq}\t{span}\n".encode()


def version_line(version: Version) -> bytes:
    ref = version.ref
    return f"{ref.kind}\t{escape(ref.id)}\t{version.seq}\t".encode() + escape_bytes(version.state) + b"\n"


def modification_lines(modifications: Sequence[Modification]) -> Iterable[bytes]:
    """Those of one fact are numbered, from 0."""
    position, number = 0, 0
    for each in modifications:
        number = number + 1 if each.position == position else 0
        position = each.position
        yield _modification_line(each, number)


def _modification_line(each: Modification, number: int) -> bytes:
    texts = (each.at, each.action, each.decision, each.namespace, each.pod, each.uid, each.node, each.job, each.plugin)
    return line_of((each.position, number, *texts, "; ".join(each.reasons), _encode_json(each).decode()))


def pod_line(episode: Episode) -> bytes:
    facts = episode.facts
    texts = (
        episode.uid,
        facts.namespace,
        facts.name,
        facts.qos,
        facts.priority_class,
        _encode_json(facts.requests).decode(),
        episode.submitted_at,
        episode.node,
        episode.placed_at,
        episode.started_at,
        facts.gang,
    )
    if _UNSAFE.search("".join(texts)):
        texts = tuple(map(escape, texts))
    uid, namespace, name, qos, priority_class, requests, submitted_at, node, placed_at, started_at, gang = texts
    line = (
        f"{uid}\t{episode.from_seq}\t{_position(episode.to_seq)}\t{namespace}\t{name}\t{qos}\t{priority_class}"
        f"\t{requests}\t{episode.submitted_seq}\t{submitted_at}\t{node}\t{_position(episode.placed_seq)}\t{placed_at}"
        f"\t{_position(episode.started_seq)}\t{started_at}\t{_position(episode.stopped_seq)}"
        f"\t{_position(episode.deleted_seq)}\t{gang}\t{span_of(episode.from_seq, episode.to_seq)}\n"
    )
    return line.encode("utf-8", "replace")


def _position(seq: int | None) -> str:
    return "\\N" if seq is None else str(seq)


def node_lines(changes: Sequence[NodeChange]) -> bytes:
    """Encoding them together is faster than one by one."""
    # JSON writes numbers and truth values as Postgres reads them: [[9,"node-1",[true,false,4000,"linux"]], ...]
    try:
        data = _encode_json(changes)
    except (OverflowError, UnicodeEncodeError):
        data = b""
    rows, columns = len(changes), len(NODE_COLUMNS)
    has_usual_texts = (
        (data.count(b","), data.count(b"["), data.count(b"]")) == (rows * columns - 1, 2 * rows + 1, 2 * rows + 1)
    ) and b"\\" not in data
    if not has_usual_texts or _LONG_NUMBER in data.translate(_DIGITS_AS_0):
        return b"".join(map(node_line, changes))
    return data.replace(b"]],[", b"\n").translate(_COMMA_AS_TAB, b'"[]') + b"\n"


def node_line(change: NodeChange) -> bytes:
    return line_of((change.seq, change.token, *msgspec.structs.astuple(change.figures)))


def series_line(row: SeriesRow) -> bytes:
    return _numbers((row.second, row.seq, *msgspec.structs.astuple(row.totals), *row.pods.values())) + b"\n"


def _numbers(values: Sequence[int]) -> bytes:
    """JSON writes numbers and truth values as Postgres reads them."""
    if max(values) > INT_MAX or min(values) < -INT_MAX:
        values = tuple(map(clamp, values))
    return _encode_json(values)[1:-1].replace(b",", b"\t")


def copy_statement(table: str, columns: Sequence[str]) -> str:
    return f"COPY {table} ({', '.join(map(quoted, columns))}) FROM STDIN"


def quoted(column: str) -> str:
    """One of them is an SQL keyword (`exists`)."""
    return f'"{column}"'


def added_rows(changes: Changes) -> Iterator[tuple[str, Sequence[str], Iterable[bytes]]]:
    """Yield (table, columns, lines) of the rows that only add to tables; without facts and pods."""
    yield "aggregate_lives", LIFE_COLUMNS, map(life_line, changes.lives)
    yield "aggregate_versions", VERSION_COLUMNS, map(version_line, changes.versions)
    yield "modifications", MODIFICATION_COLUMNS, modification_lines(changes.modifications)
    yield "aggregates", AGGREGATE_COLUMNS, map(aggregate_line, changes.new_aggregates)
    yield "node_versions", NODE_COLUMNS, (node_lines(changes.nodes),)


async def copy(cursor: AsyncCursor[TupleRow], table: str, columns: Sequence[str], lines: Iterable[bytes]) -> None:
    """No-op without lines."""
    data = b"".join(lines)
    if not data:
        return
    async with cursor.copy(copy_statement(table, columns).encode()) as copying:
        await copying.write(data)
    await asyncio.sleep(0)
