"""Destinations of finished spans: a file of JSON lines, and OTLP over HTTP by the OpenTelemetry SDK."""

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from koordcore.service.telemetry.finished_span import FinishedSpan

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

_log: Final = logging.getLogger("koordcore.tracing")


class FileSink:
    """Appends each span as one JSON line to a file.

    Each line is one write. So several services may share the file, and a killed service loses nothing.
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
        """Close the file."""
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
