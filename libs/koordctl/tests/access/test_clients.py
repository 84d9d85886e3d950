"""Questions to services over HTTP, and what a user sees when one is refused or not answered."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from ssl import SSLCertVerificationError
from threading import Thread

import pytest
import typer
from koordctl.access import clients
from koordctl.access.clients import Client
from koordctl.access.log import LogTrouble, operator_settings
from koordctl.app import app
from koordctl.objects import asking
from typer.testing import CliRunner


class Echo(BaseHTTPRequestHandler):
    """Answers with the question; a path below /refused with 409, one below /broken with no JSON."""

    def do_GET(self) -> None:
        """The question as JSON."""
        length = int(self.headers.get("content-length", 0))
        asked = {"method": self.command, "path": self.path, "body": self.rfile.read(length).decode()}
        refused, broken = self.path.startswith("/refused"), self.path.startswith("/broken")
        body = b"no such page" if broken else json.dumps({"error": "is taken"} if refused else asked).encode()
        self.send_response(409 if refused else 404 if broken else 200)
        self.send_header("content-type", "text/plain" if broken else "application/json")
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """The same."""
        self.do_GET()

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Nothing."""


@pytest.fixture
def client() -> Iterator[Client]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    Thread(target=server.serve_forever, daemon=True).start()
    yield Client("echo", url=f"http://127.0.0.1:{server.server_port}/")
    server.shutdown()
    server.server_close()


def test_a_question_is_asked_with_its_parameters(client: Client) -> None:
    answer = client.get("/v1/objects/Pod/a b", {"namespace": "x&y", "limit": 3, "at": None})
    assert answer == {"method": "GET", "path": "/v1/objects/Pod/a%20b?namespace=x%26y&limit=3", "body": ""}


def test_a_body_is_sent_as_it_is(client: Client) -> None:
    answer = client.post("/v1/apply?dryRun=All", b"kind: Pod")
    assert answer.json() == {"method": "POST", "path": "/v1/apply?dryRun=All", "body": "kind: Pod"}
    assert "json" in answer.content_type


@pytest.mark.parametrize(
    ("path", "said"), [("/refused", "is taken (HTTP 409)"), ("/broken", "no such page (HTTP 404)")]
)
def test_a_refusal_is_told_in_the_services_words(
    path: str, said: str, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as end:
        client.get(path)
    assert end.value.exit_code == 1
    assert capsys.readouterr().err == f"error: {said}\n"


class Pods(BaseHTTPRequestHandler):
    """Manager without pods, and projector with the pod `web` in the namespaces shop and default."""

    def do_GET(self) -> None:
        """The pods, or 404."""
        is_list = self.path.startswith("/api/pods?")
        pods = [{"namespace": each, "name": "web"} for each in ("shop", "default")]
        self.send_response(200 if is_list else 404)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(
            json.dumps({"pods": pods} if is_list else {"error": "Pod default/web does not exist"}).encode()
        )

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Nothing."""


@pytest.mark.parametrize(("has_projector", "hint"), [(True, "; did you mean -n shop?"), (False, "")])
def test_a_pod_that_is_elsewhere_is_named_if_the_projector_answers(
    monkeypatch: pytest.MonkeyPatch, has_projector: bool, hint: str
) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pods)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(asking, "manager", Client("manager", url=url))
    monkeypatch.setenv("KOORD_PROJECTOR", url if has_projector else "http://127.0.0.1:1")
    answer = CliRunner().invoke(app, ["get", "pod", "web"])
    server.shutdown()
    server.server_close()
    assert answer.exit_code == 1
    assert answer.stderr == f"error: Pod default/web does not exist{hint}\n"


def test_who_does_not_answer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as end:
        Client("manager", url="http://127.0.0.1:1").get("/")
    assert end.value.exit_code == 1
    assert capsys.readouterr().err == "error: manager at http://127.0.0.1:1: Connection refused\n"


def test_an_address_that_is_none_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as end:
        Client("manager", url="localhost:8080").get("/")
    assert end.value.exit_code == 2
    assert capsys.readouterr().err == "error: KOORD_MANAGER: must be http://host:port, got 'localhost:8080'\n"


def test_a_certificate_that_is_not_trusted_is_no_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(*_args: object, **_named: object) -> None:
        raise SSLCertVerificationError(1, "certificate verify failed")

    monkeypatch.setattr(clients, "ask", ask)
    with pytest.raises(typer.Exit) as end:
        Client("manager", url="https://127.0.0.1:1").get("/")
    assert end.value.exit_code == 1
    assert capsys.readouterr().err == "error: manager at https://127.0.0.1:1: certificate verify failed\n"


def test_who_finds_no_stack_says_where_it_looked_and_how_to_name_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("KOORD_VAR", "KOORD_MANAGER", "KOORD_NATS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(typer.Exit):
        clients.service_url("manager")
    said = capsys.readouterr().err
    assert said.startswith(f"error: no running manager in {tmp_path / 'var'}: start the stack with `koord up`")
    assert "KOORD_VAR=FOLDER" in said
    assert "KOORD_MANAGER=http://host:port" in said
    with pytest.raises(LogTrouble, match=f"no running log in {tmp_path / 'var'}: .* KOORD_NATS="):
        operator_settings()


class Manager(Echo):
    """Leads if its port is the one in `leading`."""

    leading = 0

    def do_GET(self) -> None:
        """Whether it leads."""
        body = json.dumps({"leads": self.server.server_port == Manager.leading, "leader": "it"}).encode()  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)


def test_of_several_managers_the_leader_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Manager) for _ in range(2)]
    for server in servers:
        Thread(target=server.serve_forever, daemon=True).start()
    urls = [f"http://127.0.0.1:{server.server_port}" for server in servers]
    monkeypatch.setenv("KOORD_MANAGER", ", ".join(["http://127.0.0.1:1", *urls]))
    try:
        for server, url in zip(servers, urls, strict=True):
            Manager.leading = server.server_port
            assert clients.find_service("manager") == url
        Manager.leading = 0
        assert clients.find_service("manager") == urls[0], "the first one that answers"
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
    assert clients.find_service("manager") == "http://127.0.0.1:1", "none answers"
