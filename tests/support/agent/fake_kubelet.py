"""A kubelet on the loopback interface, for tests."""

import http.server
import json
import threading
from typing import Any

from koord_agent.shell.kubelet.kubelet import KubeletAddress
from support.until import DEADLINE_SECONDS


class FakeKubelet:
    """A kubelet on the loopback interface that answers what a test puts into `answers`."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.tokens: list[str] = []
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                fake.tokens.append(self.headers.get("Authorization", ""))
                status, body = fake.answers.get(self.path, (404, b""))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
                return

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = KubeletAddress(
            host="127.0.0.1", port=self.server.server_port, insecure=True, timeout_seconds=DEADLINE_SECONDS
        )

    def lists(self, *pods: dict[str, Any]) -> None:
        """The pods of its next answers."""
        self.answers["/pods/"] = (200, json.dumps({"items": list(pods)}).encode())

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
