"""What `koord get` shows if the projector, which knows why pods are pending, does not answer."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from koordctl.access.clients import Client
from koordctl.app import app
from koordctl.objects import asking
from typer.testing import CliRunner

POD: dict[str, Any] = {
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "default", "uid": "u"},
    "spec": {"containers": [{"name": "c"}]},
}
REASON = {"pods": [{"uid": "u", "message": "0/1 nodes are available: 1 Insufficient cpu."}]}


class Services(BaseHTTPRequestHandler):
    """A manager with one pending pod, and a projector that knows why."""

    def do_GET(self) -> None:
        """The pod, or its reason."""
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(REASON if self.path.startswith("/api/") else {"items": [POD]}).encode())

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Nothing."""


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Services)
    Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(asking, "manager", Client("manager", url=address))
    yield address
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("has_projector", "reason"), [(True, "1 Insufficient cpu"), (False, "-")])
def test_a_pending_pod_is_shown_with_its_reason_or_without(
    url: str, monkeypatch: pytest.MonkeyPatch, has_projector: bool, reason: str
) -> None:
    monkeypatch.setenv("KOORD_PROJECTOR", url if has_projector else "http://127.0.0.1:1")
    answer = CliRunner().invoke(app, ["get", "pods", "--no-headers"])
    assert answer.exit_code == 0
    assert answer.stdout.split("   ")[:3] == ["default", "web", "Pending"]
    assert answer.stdout.rstrip().endswith(f"   {reason}")
