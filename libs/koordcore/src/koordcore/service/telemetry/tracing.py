"""Traces: their contexts in message headers, and spans around the work of a service from a message to its results.

    headers of the cause --extract--> TraceContext --Tracer.span/consume--> Span --inject--> headers of what is
    published

The scheduler continues thousands of traces a second, so contexts and spans are small own classes: continuing a trace
without recording costs a few microseconds. Finished spans are exported with the OpenTelemetry SDK if an endpoint is
set, or as JSON lines to a file. Spans always use the host's clock, also in a scaled run.

Source: W3C Trace Context level 1 (traceparent, tracestate); event-bus spec, 3.1; STYLE 3.9 (links, not parents, for
    fan-in).
"""

import logging
import os
import re
from collections.abc import Mapping, MutableMapping, Sequence
from contextvars import ContextVar, Token
from random import SystemRandom
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

import msgspec

from koordcore.service.clock import host_unix_nanos

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter


Attribute = str | int | float | bool


class FinishedSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A trace span that has ended, as it is exported. Each line of a trace file has these fields."""

    name: str  # Name of the work that the span measures, for example "decide"
    service: str
    trace_id: str  # 32 hex digits
    span_id: str  # 16 hex digits
    parent_id: str | None  # Id of the span that caused this one; None for the root of a trace
    links: list[dict[str, str]]  # Other causes, as pairs of `trace_id` and `span_id`
    start: float  # Start in unix seconds of the host
    end: float  # End in unix seconds of the host
    attributes: dict[str, Attribute]  # Further details
    error: str = ""  # Error text; empty if the work succeeded


class SpanSink(Protocol):
    """Destination of trace spans that have ended. Methods must not raise. Spans may be lost."""

    def write(self, span: FinishedSpan) -> None:
        """Accept one span. It must return without waiting for the network."""
        ...

    def close(self) -> None:
        """Deliver the remaining spans, within a few seconds."""
        ...


_log: Final = logging.getLogger("koordcore.tracing")


class FileSink:
    """Appends each span as one JSON line to a file. Each line is one write. So several services may share the file, and
    a killed service loses nothing.
    """

    def __init__(self, path: str) -> None:
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self._encoder = msgspec.json.Encoder()

    def write(self, span: FinishedSpan) -> None:
        """Append a span to the file. If the disk is full, log one warning and write no more spans."""
        if self._file is None:
            return
        try:
            os.write(self._file, self._encoder.encode(span) + b"\n")
        except OSError as error:
            _log.warning("trace_file_failed: %s", error)
            self.close()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class OtlpSink:
    """Sends spans in batches to an OpenTelemetry collector as OTLP over HTTP, from a thread. A full queue drops spans.

    Args:
        endpoint: Base URL of the collector (`https://host:4318`); `/v1/traces` is added if missing.
        exporter: Exporter that replaces the HTTP exporter in tests; None: HTTP.
    """

    def __init__(
        self, endpoint: str, *, service: str, instance: str, cluster: str, exporter: "SpanExporter | None" = None
    ) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        if exporter is None:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            url = endpoint if endpoint.rstrip("/").endswith("/v1/traces") else endpoint.rstrip("/") + "/v1/traces"
            exporter = OTLPSpanExporter(endpoint=url, timeout=5)
        self._resource = Resource(
            {"service.name": f"koord-{service}", "service.instance.id": instance, "koord.cluster": cluster}
        )
        self._processor = BatchSpanProcessor(exporter, export_timeout_millis=5_000)

    def write(self, span: FinishedSpan) -> None:
        """Add a span to the queue. If the queue is full, the span is lost."""
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import Link, SpanContext, TraceFlags
        from opentelemetry.trace.status import Status, StatusCode

        def at(trace_id: str, span_id: str, *, remote: bool) -> SpanContext:
            return SpanContext(int(trace_id, 16), int(span_id, 16), remote, TraceFlags(TraceFlags.SAMPLED))

        links: Sequence[Link] = [Link(at(link["trace_id"], link["span_id"], remote=True)) for link in span.links]
        self._processor.on_end(
            ReadableSpan(
                name=span.name,
                context=at(span.trace_id, span.span_id, remote=False),
                parent=at(span.trace_id, span.parent_id, remote=True) if span.parent_id else None,
                resource=self._resource,
                attributes=span.attributes,
                links=links,
                status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
                start_time=round(span.start * 1e9),
                end_time=round(span.end * 1e9),
            )
        )

    def close(self) -> None:
        """Send the queued spans. Give up after the export timeout."""
        self._processor.shutdown()


TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

# Version, trace id, parent id, flags; a later version may append more fields, which we do not need.
_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NO_TRACE: Final = "0" * 32
_NO_SPAN: Final = "0" * 16
_RATIO_BITS: Final = 56  # the random tail of a trace id that W3C lets samplers rely on


class TraceContext(msgspec.Struct, frozen=True):
    """Identity of a trace span, as message headers pass it on (W3C Trace Context)."""

    trace_id: str  # 32 lower-case hex digits
    span_id: str  # 16 lower-case hex digits
    sampled: bool  # Whether spans of this trace are recorded. The first service of the trace decides.
    state: str = ""  # Header `tracestate`, passed on unchanged

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"


def parse_traceparent(text: str, state: str = "") -> TraceContext | None:
    """Parse the header `traceparent`; return None if it is invalid. The caller then begins a new trace (W3C, 4.3).
    `state`: value of the header `tracestate`, which is kept in the result.
    """
    match = _TRACEPARENT.fullmatch(text)
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if trace_id == _NO_TRACE or span_id == _NO_SPAN or version == "ff" or (version == "00" and more is not None):
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & 1), state)


def extract(headers: Mapping[str, str]) -> TraceContext | None:
    """Return the trace context in the headers of a message; None if absent or invalid. Case of header names is
    ignored.
    """
    text = headers.get(TRACEPARENT)
    if text is not None:
        return parse_traceparent(text, headers.get(TRACESTATE, ""))
    lower = {name.lower(): name for name in headers}
    name = lower.get(TRACEPARENT)
    if name is None:
        return None
    return parse_traceparent(headers[name], headers[lower[TRACESTATE]] if TRACESTATE in lower else "")


def inject(context: TraceContext, headers: MutableMapping[str, str]) -> None:
    """Write a trace context into the headers of a message: `traceparent`, and `tracestate` if it is not empty. An
    existing `tracestate` stays if that of the context is empty.
    """
    headers[TRACEPARENT] = context.traceparent
    if context.state:
        headers[TRACESTATE] = context.state


_current: ContextVar[TraceContext | None] = ContextVar("koord_trace", default=None)


def current_context() -> TraceContext | None:
    """Return the trace context of the innermost open span of this task; None outside of spans. Log lines take their
    `trace_id` from it.
    """
    return _current.get()


class Span:
    """A trace span around a `with` block. `Tracer` creates it."""

    __slots__ = ("_attributes", "_links", "_name", "_parent_id", "_start_nanos", "_token", "_tracer", "context")

    def __init__(
        self,
        tracer: "Tracer",
        name: str,
        context: TraceContext,
        parent_id: str | None,
        links: Sequence[TraceContext],
        attributes: Mapping[str, Attribute] | None,
    ) -> None:
        self.context = context
        self._tracer = tracer
        self._name = name
        self._parent_id = parent_id
        self._links = links
        self._token: Token[TraceContext | None] | None = None
        self._start_nanos = 0
        self._attributes = attributes

    @property
    def recording(self) -> bool:
        """Whether the span is recorded. If it is not, callers can skip attributes that are expensive to compute."""
        return self.context.sampled and self._tracer.exports

    def set(self, name: str, value: Attribute) -> None:
        """Add one attribute. No-op if the span is not recorded."""
        if self.recording:
            self._attributes = {**(self._attributes or {}), name: value}

    def headers(self) -> dict[str, str]:
        """Return message headers with the trace context of this span. Add them to messages that the span causes."""
        headers: dict[str, str] = {}
        inject(self.context, headers)
        return headers

    def __enter__(self) -> Self:
        self._token = _current.set(self.context)
        if self.recording:
            self._start_nanos = host_unix_nanos()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _current.reset(self._token)
        if self.recording:
            self._tracer.finish(
                self._name,
                self.context,
                self._parent_id,
                links=self._links,
                attributes=self._attributes,
                start_nanos=self._start_nanos,
                error="" if error is None else f"{type(error).__name__}: {error}",
            )


class Tracer:
    """Creates trace contexts and spans for one service.

    Args:
        sample_ratio: Share (0..1) of the traces that begin here and are recorded. Other traces follow their own flag.
        sinks: Destinations of ended spans. Without sinks, contexts are passed on and nothing is recorded.
    """

    def __init__(self, service: str, *, sample_ratio: float = 1.0, sinks: Sequence[SpanSink] = ()) -> None:
        self.service = service
        self._sinks = tuple(sinks)
        self._threshold = round(sample_ratio * (1 << _RATIO_BITS))
        # One system call per 4 KiB of randomness: SystemRandom per id would be one per id.
        self._random = _Randomness()

    @property
    def exports(self) -> bool:
        """Whether spans are exported: there is at least one sink."""
        return bool(self._sinks)

    def begin(self) -> TraceContext:
        trace_id = self._random.hex(32)
        sampled = int(trace_id[-_RATIO_BITS // 4 :], 16) < self._threshold
        return TraceContext(trace_id, self._random.hex(16), sampled)

    def child(self, parent: TraceContext | None) -> TraceContext:
        """Return the context of a new span in the trace of `parent`; if `parent` is None, begin a new trace."""
        if parent is None:
            return self.begin()
        return TraceContext(parent.trace_id, self._random.hex(16), parent.sampled, parent.state)

    def span(
        self,
        name: str,
        parent: TraceContext | None = None,
        *,
        links: Sequence[TraceContext] = (),
        attributes: Mapping[str, Attribute] | None = None,
    ) -> Span:
        """Return a span for a `with` block. `parent`: Context that caused it; None: begin a new trace. Pass
        `current_context()` to nest the span. `links`: Contexts of further causes.
        """
        return Span(self, name, self.child(parent), parent.span_id if parent else None, links, attributes)

    def emit(
        self,
        name: str,
        parent: TraceContext | None,
        *,
        links: Sequence[TraceContext] = (),
        attributes: Mapping[str, Attribute] | None = None,
        start_nanos: int | None = None,
    ) -> TraceContext:
        """Record a span that has already ended, and return its context for the messages that it published. It is for
        loops that handle many traces at once, for example a scheduling cycle with one span per pod.

        Args:
            parent: Context that caused it; None: begin a new trace.
            links: Contexts of further causes.
            start_nanos: Start from `host_unix_nanos()`; None: the span has no duration.
        """
        context = self.child(parent)
        if context.sampled and self._sinks:
            self.finish(
                name,
                context,
                parent.span_id if parent else None,
                links=links,
                attributes=attributes,
                start_nanos=start_nanos if start_nanos is not None else host_unix_nanos(),
                error="",
            )
        return context

    def finish(
        self,
        name: str,
        context: TraceContext,
        parent_id: str | None,
        *,
        links: Sequence[TraceContext],
        attributes: Mapping[str, Attribute] | None,
        start_nanos: int,
        error: str,
    ) -> None:
        """Write a span that ends now to the sinks. Only `Span` and `Tracer.emit` call it.

        Args:
            context: Identity of the span.
            parent_id: Id of the span that caused it; None for the root of a trace.
            links: Contexts of further causes.
            start_nanos: Start from `host_unix_nanos()`.
            error: Error text; "" if the work succeeded.
        """
        span = FinishedSpan(
            name=name,
            service=self.service,
            trace_id=context.trace_id,
            span_id=context.span_id,
            parent_id=parent_id,
            links=[{"trace_id": link.trace_id, "span_id": link.span_id} for link in links],
            start=start_nanos / 1e9,
            end=host_unix_nanos() / 1e9,
            attributes=dict(attributes or {}),
            error=error,
        )
        for sink in self._sinks:
            sink.write(span)

    def close(self) -> None:
        """Let the sinks deliver the spans that they still have, and close them."""
        for sink in self._sinks:
            sink.close()


class _Randomness:
    """Random hex digits from the operating system, read in blocks."""

    __slots__ = ("_digits", "_position", "_source")

    def __init__(self) -> None:
        self._source = SystemRandom()
        self._digits = ""
        self._position = 0

    def hex(self, count: int) -> str:
        """Return a random text of `count` hex digits, not all zero."""
        end = self._position + count
        if end > len(self._digits):
            self._digits = self._source.randbytes(4096).hex()
            self._position, end = 0, count
        digits = self._digits[self._position : end]
        self._position = end
        return digits if digits.strip("0") else self.hex(count)


def make_tracer(
    service: str, *, instance: str, cluster: str, otlp_endpoint: str | None, trace_file: str | None, sample_ratio: float
) -> Tracer:
    """Return the tracer that the settings describe. OpenTelemetry is imported only if an endpoint is set.

    Args:
        otlp_endpoint: Base URL of a collector; None: no export.
        trace_file: File to which spans are appended; None: no file.
        sample_ratio: Share (0..1) of the traces that begin here and are recorded.

    Raises:
        OSError: The file cannot be opened.
    """
    sinks: list[SpanSink] = []
    if trace_file:
        sinks.append(FileSink(trace_file))
    if otlp_endpoint:
        sinks.append(OtlpSink(otlp_endpoint, service=service, instance=instance, cluster=cluster))
    return Tracer(service, sample_ratio=sample_ratio, sinks=sinks)
