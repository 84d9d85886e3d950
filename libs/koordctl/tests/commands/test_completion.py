"""What a shell offers, and that nothing but offers reaches the line that the user types."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

pytestmark = pytest.mark.slow


def completed(typed: str, folder: Path, **variables: str) -> tuple[list[str], str]:
    """The offers for a line, and what is said besides."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KOORD_")}
    done = subprocess.run(
        [sys.executable, "-m", "koordctl"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={
            **environment,
            "KOORD_VAR": str(folder),
            "_KOORD_COMPLETE": "complete_bash",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(typed.split(" ")) - 1),
            **variables,
        },
    )
    return done.stdout.split(), done.stderr


@pytest.mark.parametrize("typed", ["koord logs ", "koord logs web ", "koord exec w", "koord version "])
def test_a_word_without_a_command_here_offers_nothing(typed: str, tmp_path: Path) -> None:
    assert completed(typed, tmp_path) == ([], "")


def test_after_help_stand_commands(tmp_path: Path) -> None:
    assert completed("koord help expl", tmp_path) == (["explain"], "")
    assert completed("koord help explain po", tmp_path) == (["pod"], "")


NAMES = {
    "/v1/names/Pod?prefix=w&field=name": ["web", "worker"],
    "/v1/names/Node?prefix=w&field=name": ["west"],
    "/v1/names/Namespace?prefix=w&field=name": ["wide"],
    "/v1/names/Pod?prefix=w&field=namespace": ["wide", "writers"],
}
"""Path -> names of a manager."""


class Manager(BaseHTTPRequestHandler):
    """It answers with names; at `/slow`, it goes on to send as long as somebody reads; at `/list`, with a list."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        while self.path.startswith("/slow"):
            try:
                self.wfile.write(b" ")
            except OSError:
                return
            time.sleep(0.1)
        is_list = self.path.startswith("/list")
        self.wfile.write(b"[]" if is_list else json.dumps({"names": NAMES[self.path]}).encode())

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Nothing."""


@pytest.fixture
def manager() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Manager)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("koord get pods w", ["web", "worker"]),
        ("koord get po/w", ["po/web", "po/worker"]),
        ("koord get pods,no w", ["web", "west", "worker"]),
        ("koord explain pod w", ["web", "worker"]),
        ("koord get pods -n w", ["wide", "writers"]),
        ("koord get unknown w", []),
    ],
)
def test_the_manager_is_asked_only_for_names_that_begin_so(
    typed: str, offered: list[str], manager: str, tmp_path: Path
) -> None:
    assert completed(typed, tmp_path, KOORD_MANAGER=manager) == (offered, "")


@pytest.mark.parametrize("answer", ["slow", "list"])
def test_a_manager_that_never_ends_or_sends_something_else_offers_nothing(
    answer: str, manager: str, tmp_path: Path
) -> None:
    assert completed("koord get pods w", tmp_path, KOORD_MANAGER=f"{manager}/{answer}") == ([], "")


@pytest.mark.parametrize(
    "variables",
    [
        {"KOORD_MANAGER": "http://127.0.0.1:1", "KOORD_TOKEN_FILE": "/missing"},
        {"KOORD_MANAGER": "https://127.0.0.1:1", "KOORD_CA": "/missing"},
        {"KOORD_MANAGER": "no address"},
    ],
    ids=["no token", "no authority", "no address"],
)
def test_what_keeps_from_asking_for_names_is_not_said(variables: dict[str, str], tmp_path: Path) -> None:
    assert completed("koord get pods ", tmp_path, **variables) == ([], "")


def test_half_a_state_file_is_not_said(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "stack.json").write_text('{"phase": "rea')
    assert completed("koord get pods ", tmp_path) == ([], "")
    assert completed("koord get po", tmp_path)[0]


@pytest.mark.parametrize("words", [["g"], ["logs", ""]], ids=["offers", "no offers"])
def test_kubectl_may_stop_to_read(words: list[str], tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "kubectl_complete-koord"
    environment = {**os.environ, "KOORD_VAR": str(tmp_path)}
    with subprocess.Popen(
        [program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        said = running.stderr.read()
    assert (running.returncode, said) == (0, b"")
