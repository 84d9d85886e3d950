"""HTTP on one connection: uvicorn's protocol with limits on size, number and time of what a client sends.

uvicorn with httptools keeps headers, URL and trailers without limit, and waits without end for the first request. The
limits here hold before the application sees a request. `http_guard` has those of bodies and answers.
"""

import asyncio
from http import HTTPStatus
from typing import Any, Final

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from koordcore.service.web.connections import Connection, Connections
from koordcore.values.override import override

PIECE: Final = 16 * 1024  # Bytes that are parsed before the limits are looked at again


class _Refused(Exception):
    """The request is refused with a status, before the application sees it."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class LimitedProtocol(HttpToolsProtocol):
    """Serves the requests of one connection within the limits of `connections`."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        *,
        connections: Connections,
        connection: Connection,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._connections = connections
        self._connection = connection
        self._limits = connections.limits
        # Bytes since the head of a request was complete, or content of a body arrived, or a request ended.
        self._unread = 0
        self._headers_seen = 0
        self._is_in_head = True
        self._had_request = False
        self._refusal: _Refused | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  as in uvicorn
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(self._limits.head_seconds, self.timeout_keep_alive_handler)
        self._connection.opened(transport)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.gone(self._connection)
        self._unset_keepalive_if_required()
        self._stop_write_timer()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        rest, parser = memoryview(data), self.parser
        assert parser is not None, "the connection is not lost"
        while rest and not self.transport.is_closing():
            room = self._limits.head_bytes - self._unread
            if room <= 0:
                sentence = f"the head of a request must not be longer than {self._limits.head_bytes} bytes"
                self._refuse(_Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, sentence))
                return
            part, rest = rest[: min(room, PIECE)], rest[min(room, PIECE) :]
            self._unread += len(part)
            try:
                parser.feed_data(part)
            except httptools.HttpParserUpgrade:
                return  # answered as a request without an upgrade; what follows was meant for the other protocol
            except httptools.HttpParserError:
                invalid = _Refused(HTTPStatus.BAD_REQUEST, "Invalid HTTP request received.")
                self._refuse(self._refusal or invalid)
                return

    @override
    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._headers_seen = 0
        self._is_in_head = True

    @override
    def on_url(self, url: bytes) -> None:
        if len(self.url) + len(url) > self._limits.url_bytes:
            self._stop_parsing(
                HTTPStatus.REQUEST_URI_TOO_LONG, f"the URL must not be longer than {self._limits.url_bytes} bytes"
            )
        super().on_url(url)

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers_seen += 1
        if self._headers_seen > self._limits.headers:
            self._stop_parsing(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"a request must not have more than {self._limits.headers} headers",
            )
        if self._is_in_head:  # trailers are dropped: the application would take them for headers
            super().on_header(name, value)

    @override
    def on_headers_complete(self) -> None:
        self._unread = 0
        self._is_in_head = False
        self._had_request = True
        if len(self.pipeline) >= self._limits.pipelined:
            self._stop_parsing(
                HTTPStatus.BAD_REQUEST, f"not more than {self._limits.pipelined} requests may wait for an answer"
            )
        self._unset_keepalive_if_required()
        self._connections.works(self._connection)
        super().on_headers_complete()

    @override
    def on_body(self, body: bytes) -> None:
        self._unread = 0
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        self._unread = 0
        super().on_message_complete()

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:
            self._connections.waits(self._connection)

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self._limits.write_seconds, self._give_up_writing)

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_write_timer()

    @override
    def timeout_keep_alive_handler(self) -> None:
        if self.transport.is_closing():
            return
        if self._unread:
            self._refuse(_Refused(HTTPStatus.REQUEST_TIMEOUT, "the request did not arrive in time"))
        elif self._had_request:
            self.transport.close()
        else:
            self._connections.refused("time")
            self.transport.abort()

    def _give_up_writing(self) -> None:
        self._connections.refused("time")
        self.transport.abort()

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _stop_parsing(self, status: HTTPStatus, sentence: str) -> None:
        """End the parsing of a request from within a callback of the parser.

        Raises:
            _Refused: Always; the parser ends with an error of its own.
        """
        self._refusal = _Refused(status, sentence)
        raise self._refusal

    def _refuse(self, refusal: _Refused) -> None:
        """Answer with the reason, unless another answer is on its way, and close the connection."""
        self._connections.refused("time" if refusal.status is HTTPStatus.REQUEST_TIMEOUT else "size")
        if self.cycle is not None and not self.cycle.response_complete:  # pyright: ignore[reportUnnecessaryComparison]  None before the first request
            has_begun = self.cycle.response_started or bool(self.pipeline)
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if has_begun:
                self.transport.abort()
                return
        text = f"{refusal}\n".encode("ascii")
        head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(text)
        self.transport.write(STATUS_LINE[refusal.status] + head + text)
        self.transport.close()
