"""An OTLP/HTTP receiver on loopback: the spans that a collector, and behind it Jaeger, would get."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class ReceivedSpan(NamedTuple):
    """A span as it arrived; its ids are hex digits, and `parent_id` is "" for a root."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str


class OtlpReceiver(ThreadingHTTPServer):
    """Keeps the spans that were posted to `/v1/traces`."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        """Value of `--otlp-endpoint`."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: OtlpReceiver  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.spans.extend(_spans(ExportTraceServiceRequest.FromString(body)))
        self.send_response(200 if self.path == "/v1/traces" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  name of the base class
        pass


def _spans(request: ExportTraceServiceRequest) -> Iterator[ReceivedSpan]:
    for group in request.resource_spans:
        names = {each.key: each.value.string_value for each in group.resource.attributes}
        for scope in group.scope_spans:
            for span in scope.spans:
                ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
                yield ReceivedSpan(names["service.name"], span.name, *ids)


@contextmanager
def otlp_receiver() -> Generator[OtlpReceiver]:
    """A running receiver."""
    server = OtlpReceiver()
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
