"""The demo on a small part of the trace: it ends by itself, and everything that it promises held."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from koordcore.embedded.identity import is_alive
from koordcore.embedded.stack import read_stack
from koordctl.stack.containers import unusable
from support.servers import server_directory

pytestmark = [pytest.mark.slow, pytest.mark.nats, pytest.mark.postgres, pytest.mark.xdist_group("embedded-stack")]

PROMISED = {
    "pods_submitted", "pods_placed", "pods_pending", "double_placements", "overcommitted_nodes",
    "submit_to_placed_p50_ms", "submit_to_placed_p99_ms", "events", "events_per_s", "replay_events_per_s",
    "folds_agree", "folds", "startup_s", "wall_s",
}  # fmt: skip

PATIENCE_SECONDS = 1000
"""Less than the limit of a test, so that a demo that hangs is ended."""


def demo(var: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "koordctl", "demo", "--var", str(var), *words]


@pytest.mark.deep
def test_small_demo_ends_with_every_invariant_held() -> None:
    with server_directory() as folder:
        var = folder / "demo"
        done = subprocess.run(
            demo(var, "--nodes", "60", "--limit", "300", "--seconds", "5", "--exit"),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
            env={**os.environ, "KOORD_VAR": str(folder)},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        summary = json.loads((var / "summary.json").read_text())
        assert summary.keys() >= PROMISED
        assert summary["pods_submitted"] + summary["pods_evicted"] == 300
        assert summary["pods_placed"] + summary["pods_pending"] == summary["pods_submitted"]
        assert summary["unprotected"]["slowdown_p99"] >= 1.0
        assert sum(summary["pending_reasons"].values()) == summary["pods_pending"]
        assert (summary["double_placements"], summary["overcommitted_nodes"], summary["violations"]) == (0, 0, [])
        assert summary["folds_agree"], summary["folds"]
        assert summary["utilisation_with_overcommit_percent"] > summary["utilisation_requested_only_percent"] > 0
        assert read_stack(var / "run" / "stack.json") is None
        container = summary["real_container"]
        if reason := unusable(var / "containers"):
            assert container == {"missing": reason}
        else:
            assert "decided" in container, container
            assert container["decided"]["CPUs"]
            assert container["decided"].items() <= container["found"].items(), container


@pytest.mark.deep
def test_day_with_failing_devices_breaks_no_rule() -> None:
    with server_directory() as folder:
        var = folder / "demo"
        done = subprocess.run(
            demo(var, "--failing-devices", "--nodes", "40", "--limit", "300", "--seconds", "6", "--exit"),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
            env={**os.environ, "KOORD_VAR": str(folder)},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        summary = json.loads((var / "summary.json").read_text())
        assert summary["violations"] == []
        assert summary["failed"] == summary["recovered"]
        assert set(summary["failed"]) == {"gpu", "rdma"}
        assert summary["vanished_nodes"] > 0
        assert summary["told"] > 0
        assert summary["pods_with_devices"] > 200
        for rule in ("given_unhealthy", "given_twice", "untold_pods", "not_returned", "double_placements"):
            assert summary[rule] == 0
        assert summary["folds_agree"], summary["folds"]


def hears_ctrl_c() -> None:
    """A shell's background job, and what it starts, ignores SIGINT from the beginning."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.deep
def test_interrupted_demo_stops_everything() -> None:
    with server_directory() as folder:
        var = folder / "demo"
        process = subprocess.Popen(
            demo(var, "--nodes", "20", "--limit", "2000", "--seconds", "100"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "KOORD_VAR": str(folder)},
            preexec_fn=hears_ctrl_c,
        )
        assert process.stderr is not None
        said: list[str] = []
        for line in process.stderr:
            said.append(line)
            if line.startswith("sending"):
                break
        stack = read_stack(var / "run" / "stack.json")
        assert stack is not None, said
        beside = subprocess.run(
            [sys.executable, "-m", "koordctl", "up"],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
            env={**os.environ, "KOORD_VAR": str(folder)},
        )
        assert beside.returncode == 1
        assert beside.stderr.startswith(f"error: a demo runs in {var}, and other commands would use this stack instead")
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 130
        assert "Traceback" not in rest
        assert not [status.name for status in stack.processes if status.process and is_alive(status.process)]
