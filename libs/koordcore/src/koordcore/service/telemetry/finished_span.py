"""A trace span that has ended, and the protocol of the sinks that export such spans."""

from typing import Protocol

import msgspec

Attribute = str | int | float | bool


class FinishedSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A trace span that has ended, as it is exported. Each line of a trace file has these fields.

    Attributes:
        name: Name of the work that the span measures, for example "decide".
        service: Name of the service.
        trace_id: 32 hex digits.
        span_id: 16 hex digits.
        parent_id: Id of the span that caused this one; None for the root of a trace.
        links: Other causes, as pairs of `trace_id` and `span_id`.
        start: Start in unix seconds of the host.
        end: End in unix seconds of the host.
        attributes: Further details.
        error: Error text; empty if the work succeeded.
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
    """Destination of trace spans that have ended. Methods must not raise. Spans may be lost."""

    def write(self, span: FinishedSpan) -> None:
        """Accept one span. It must return without waiting for the network."""
        ...

    def close(self) -> None:
        """Deliver the remaining spans, within a few seconds."""
        ...
