"""`koord gang` beside a scheduler that answers over HTTP."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlsplit

import pytest
from koordctl import gang
from koordctl.access.clients import Client
from koordctl.app import app
from typer.testing import CliRunner

PLUGIN = "/apis/v1/plugins/Coscheduling"
GANG = "default/train #1?"


class Scheduler(BaseHTTPRequestHandler):
    """Answers with the lines of one gang, and with the gang itself if its path is asked for."""

    def do_GET(self) -> None:
        """Answer like the scheduler, which unquotes the path without its query."""
        answers = {f"{PLUGIN}/lines": [{"id": GANG}], f"{PLUGIN}/gang/{GANG}": {"name": GANG}}
        answer = answers.get(unquote(urlsplit(self.path).path))
        self.send_response(200 if answer is not None else 404)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that the base class has
        """Write no line for each request."""


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Scheduler)
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(gang, "scheduler", Client("scheduler", url=f"http://127.0.0.1:{server.server_port}"))
    yield
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize("word", ["train #1?", "pg/train #1?", "PodGroup/train #1?", "gang/train #1?"])
def test_the_name_of_a_gang_may_be_any_text(word: str) -> None:
    answer = CliRunner().invoke(app, ["gang", word, "-o", "json"])

    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout) == {"name": GANG}


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize("word", ["pod/train #1?", "pg/", "pg/train"])
def test_what_is_no_gang_is_named_as_it_was_typed(word: str) -> None:
    answer = CliRunner().invoke(app, ["gang", word])
    assert answer.exit_code == 1
    assert f"there is no gang {word.removeprefix('pg/') or word}" in answer.stderr
