"""A finished span, and the protocol of the sinks that export it."""

from typing import Protocol

import msgspec

Attribute = str | int | float | bool


class FinishedSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A span as it is exported; each JSON line of a trace file has these fields.

    Attributes:
        name: What was done.
        service: Name of the service.
        trace_id: 32 hex digits.
        span_id: 16 hex digits.
        parent_id: Span that caused this one; None for the root of a trace.
        links: Other causes, as `trace_id` and `span_id`.
        start: Seconds since 1970 of the host.
        end: Seconds since 1970 of the host.
        attributes: Details.
        error: Empty if the work succeeded.
    """

    name: str
    service: str
    trace_id: str
    span_id: str
    parent_id: str | None
    links: list[dict[str, str]]
    start: float
    end: float
    attributes: dict[str, Attribute]
    error: str = ""


class SpanSink(Protocol):
    """Where finished spans go. Neither method may raise: losing a span is normal."""

    def write(self, span: FinishedSpan) -> None:
        """Take one span without waiting for the network."""
        ...

    def close(self) -> None:
        """Deliver the spans that are still held, within seconds."""
        ...
