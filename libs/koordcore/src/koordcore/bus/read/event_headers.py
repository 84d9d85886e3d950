"""Headers of a delivered event, which are parsed at the first access.

Most readers of whole logs need few of them, so the usual layout is read with one regular expression.
"""

import re
from collections.abc import Iterator
from typing import Final, TypeVar, overload

from koordcore.bus.client.wire import decode_headers
from koordcore.events import envelope
from koordcore.events.envelope import DeferredHeaders, HeaderTexts
from koordcore.values.override import override

T = TypeVar("T")

_TEXT: Final = r"([ -\[\]-~]*)"  # printable ASCII without the backslash
_SEALED: Final = {
    envelope.HEADER_ID: _TEXT,
    envelope.HEADER_TYPE: _TEXT,
    envelope.HEADER_SCHEMA: "([0-9]{1,9})",
    envelope.HEADER_CAUSATION: _TEXT,
    envelope.HEADER_CORRELATION: _TEXT,
    envelope.HEADER_ACTOR: _TEXT,
    envelope.HEADER_EPOCH: "([0-9]{1,18})",
    envelope.HEADER_OCCURRED_AT: _TEXT,
    envelope.HEADER_BASED_ON: "([0-9]{1,18})",
}
# The headers that `envelope.seal` writes, in its order, and the one that an append adds.
_LAYOUT: Final = re.compile(
    r"NATS/1\.0\r\n"
    + "".join(f"{name}: {value}\r\n" for name, value in _SEALED.items()).replace(
        envelope.HEADER_ID, f"(?:{envelope.HEADER_ID}|{envelope.HEADER_RELAYED_ID})", 1
    )
    + f"{envelope.HEADER_CONTENT_TYPE}: application/json\r\n"
    + f"(?:{envelope.HEADER_TRACEPARENT}: {_TEXT}\r\n(?:{envelope.HEADER_TRACESTATE}: [^\r\n]*\r\n)?)?"
    + f"(?:{envelope.HEADER_EXPECTED_LAST}: [0-9]*\r\n)?\r\n"
)


class EventHeaders(DeferredHeaders):
    """Headers of an event that a NATS server delivered. They are parsed at the first access. So a fold can recognise
    its own events by their id without parsing.
    """

    __slots__ = ("_block", "_read", "_texts")

    def __init__(self, block: bytes) -> None:
        self._block = block
        self._read: dict[str, str] | None = None
        self._texts: HeaderTexts | None = None

    @override
    def texts(self) -> HeaderTexts | None:
        if self._texts is None and (found := _LAYOUT.fullmatch(self._block.decode("latin-1"))):
            self._texts = HeaderTexts._make(found.groups(""))
        return self._texts

    @override
    def has_line(self, line: bytes) -> bool:
        return line in self._block

    @override
    def parsed(self) -> dict[str, str]:
        if self._read is None:
            self._read = _event_headers(self._block)
        return self._read

    @overload
    def get(self, key: str, default: None = None, /) -> str | None: ...
    @overload
    def get(self, key: str, default: str, /) -> str: ...
    @overload
    def get(self, key: str, default: T, /) -> str | T: ...
    def get(self, key: str, default: object = None, /) -> object:
        return self.parsed().get(key, default)

    def __getitem__(self, name: str) -> str:
        return self.parsed()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parsed())

    def __len__(self) -> int:
        return len(self.parsed())


def _event_headers(block: bytes) -> dict[str, str]:
    """Parse headers, with a fast path for the layout of `wire.encode_headers`."""
    if block[8:10] == b"\r\n":
        try:
            found = dict([line.split(": ", 1) for line in block[10:-4].decode().split("\r\n")])  # type: ignore[arg-type]  # pairs
            return envelope.with_id(found)
        except ValueError:
            pass
    return envelope.with_id(decode_headers(block))
