"""A plugin: what the tests of a run took, in `var/durations-<suite>.txt`, the slowest first.

    CPU 512 s in all, children included
    12.31 s  tests/e2e/test_one_pod.py::test_explain_tells_the_whole_story

A time is that of the clock, with setup and teardown. The CPU time lacks processes that left their parent, such as those
of `koord up`.
"""

import resource
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

_LEAST_SECONDS = 0.05
_FOLDER = Path(__file__).parents[2] / "var"


class Durations:
    """Collects in the process that reports; the workers of xdist tell it their CPU time."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._workers_cpu = 0.0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._workers_cpu += getattr(node, "workeroutput", {}).get("cpu_seconds", 0.0)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """After the fixtures of the session have ended their servers."""
        output: dict[str, Any] | None = getattr(self._config, "workeroutput", None)
        if output is not None:
            output["cpu_seconds"] = _cpu_seconds()
        elif self._seconds:
            suite = self._config.getoption("--suite") or "test"
            cpu = self._workers_cpu or _cpu_seconds()
            slowest = sorted(self._seconds.items(), key=lambda item: -item[1])
            lines = [f"{seconds:.2f} s  {name}" for name, seconds in slowest if seconds > _LEAST_SECONDS]
            _FOLDER.mkdir(exist_ok=True)
            text = "\n".join([f"CPU {cpu:.0f} s in all, children included", *lines])
            (_FOLDER / f"durations-{suite}.txt").write_text(f"{text}\n", encoding="utf-8")


def _cpu_seconds() -> float:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def pytest_configure(config: pytest.Config) -> None:
    """Register the collector of this process."""
    config.pluginmanager.register(Durations(config), "durations")
