"""`make audit` with a small advisory service that speaks OSV's API: none known, one known, and no answer."""

import asyncio
import json
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from koordcore.embedded.ports import free_ports

ROOT = Path(__file__).parents[2]
UV = ROOT / ".tools" / "bin" / "uv"
ADVISORY: dict[str, Any] = {
    "id": "GHSA-test-0000-0000",
    "summary": "a test advisory",
    "modified": "2026-01-01T00:00:00Z",
    "published": "2026-01-01T00:00:00Z",
    "affected": [{"package": {"ecosystem": "PyPI", "name": "pyyaml"}, "versions": []}],
}

pytestmark = pytest.mark.skipif(not UV.exists(), reason="uv is not in .tools (make setup)")


class Advisories(BaseHTTPRequestHandler):
    """Answers that pyyaml has an advisory if the server's attribute says so."""

    def do_POST(self) -> None:
        queries = json.loads(self.rfile.read(int(self.headers["content-length"])))["queries"]
        known = [{"id": ADVISORY["id"], "modified": ADVISORY["modified"]}]
        names = [query["package"]["name"] for query in queries]
        is_known: bool = getattr(self.server, "is_known")  # noqa: B009  an attribute of the test
        self._answer({"results": [{"vulns": known} if is_known and name == "pyyaml" else {} for name in names]})

    def do_GET(self) -> None:
        self._answer(ADVISORY)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name of the library
        """Write no line for each request."""

    def _answer(self, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def advisories(*, is_known: bool) -> Generator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Advisories)
    server.is_known = is_known  # pyright: ignore[reportAttributeAccessIssue]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def audit(url: str) -> tuple[int, str]:
    """Run the audit against an advisory service; return its status and output."""
    environment = {**os.environ, "AUDIT_FLAGS": f"--service-url {url} --no-cache", "UV_HTTP_RETRIES": "0"}
    process = await asyncio.create_subprocess_exec(
        ROOT / ".ci" / "audit", env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def test_no_known_vulnerability_passes() -> None:
    with advisories(is_known=False) as url:
        status, output = await audit(url)
    assert (status, "no known vulnerability" in output) == (0, True), output


async def test_a_known_vulnerability_fails_and_is_named() -> None:
    with advisories(is_known=True) as url:
        status, output = await audit(url)
    assert status == 1, output
    assert "GHSA-test-0000-0000" in output
    assert "pyyaml" in output


async def test_an_audit_that_cannot_be_done_does_not_pass() -> None:
    status, output = await audit(f"http://127.0.0.1:{free_ports(1)[0]}/")
    assert (status, "NOT DONE" in output) == (2, True), output
