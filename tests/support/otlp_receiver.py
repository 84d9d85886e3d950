"""An OTLP/HTTP receiver on loopback, with TLS: the spans that a collector, and behind it Jaeger, would get."""

import ssl
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import pytest
from koordcore.bus.setup.tls_files import TlsFiles
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

    def __init__(self, tls: TlsFiles) -> None:
        self.spans: list[ReceivedSpan] = []
        super().__init__(("127.0.0.1", 0), _Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.server_certificate, tls.server_key)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def url(self) -> str:
        """Value of `--otlp-endpoint`."""
        return f"https://127.0.0.1:{self.server_port}"


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


def trust_only(authority: Path, patch: pytest.MonkeyPatch) -> None:
    """Let exporters of this process and its children trust one authority. Bundles of the machine would come first."""
    patch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(authority))
    for bundle in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        patch.delenv(bundle, raising=False)


@contextmanager
def otlp_receiver(tls: TlsFiles) -> Generator[OtlpReceiver]:
    """A running receiver with the certificate of these files."""
    server = OtlpReceiver(tls)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
