"""Which clock the commands go by: the run's, where the stack has one of its own."""

from pathlib import Path

import pytest
from koordcore.service.clock import ScaledClock, SystemClock
from koordctl.access.clock import run_clock
from koordctl.access.times import clock_sentence


@pytest.fixture(autouse=True)
def var(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a stack."""
    monkeypatch.delenv("KOORD_NATS", raising=False)
    monkeypatch.setenv("KOORD_VAR", str(tmp_path))
    return tmp_path


def test_simulated_run_is_asked_by_its_own_clock_and_says_so(var: Path) -> None:
    (var / "clock").write_text(f"{ScaledClock.starting_now(60, at_unix=5e9)}\n")
    clock = run_clock()
    assert clock.unix() >= 5e9
    assert clock_sentence(clock).startswith("times are of the run's clock, which is 60 times as fast as real")


def test_real_time_needs_no_word(var: Path) -> None:
    (var / "clock").write_text("system\n")
    assert isinstance(run_clock(), SystemClock)
    assert clock_sentence(run_clock()) == ""


def test_another_cluster_has_the_hosts_time(var: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (var / "clock").write_text(f"{ScaledClock.starting_now(60)}\n")
    monkeypatch.setenv("KOORD_NATS", "nats://elsewhere:4222")
    assert isinstance(run_clock(), SystemClock)
