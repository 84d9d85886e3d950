"""A page with metrics that a command serves while it works, over HTTP or over TLS."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Final

from koordctl.render.output import fail

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

CLIENT_SECONDS: Final = 10.0
"""Time for which a connection may stay silent."""


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a connection that breaks. Each request has its own thread, so no other one is affected."""


class _Server6(_Server):
    address_family = socket.AF_INET6


def address_of(listen: str) -> tuple[str, int]:
    """Return host and port of the option `--listen HOST:PORT`. End the command if it has another form."""
    host, _, port = listen.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        fail(f"--listen must be HOST:PORT, got {listen!r}", status=2)
    return host.strip("[]"), int(port)


@contextmanager
def served_metrics(
    registry: CollectorRegistry, address: tuple[str, int], certificate: Path | None
) -> Generator[Callable[[], bool]]:
    """Serve metrics inside the block, and yield a function that loads the certificate again if it was rotated.

    The command ends if the address is in use, or if the certificate cannot be read.

    Args:
        registry: The metrics. They are read at each request.
        address: Host and port.
        certificate: File `<name>.crt` of the certificate, beside its key `<name>.key`. None serves without TLS.
    """
    from koordcore.service.web.certificate import Certificate
    from prometheus_client import MetricsHandler

    handler = MetricsHandler.factory(registry)
    handler.timeout = CLIENT_SECONDS
    try:
        server = (_Server6 if ":" in address[0] else _Server)(address, handler)
    except OSError as error:
        fail(f"--listen {address[0]}:{address[1]}: {error.strerror}")
    loaded: Certificate | None = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            loaded = Certificate(context, certificate, certificate.with_suffix(".key"))
        except OSError as error:
            fail(f"{certificate} and its key: {error.strerror}")
        # The thread of the connection makes the handshake. Otherwise a silent client would block all others.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield loaded.reload_when_rotated if loaded is not None else lambda: False
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
