"""Fixtures for every test of the workspace.

The real servers of `tests/support/servers.py`, fresh logging, and the settings of property tests.
"""

import gc
import logging
import os
import signal
import sys
from collections.abc import Generator
from typing import Any

import pytest
import structlog
from _pytest.nodeid import coerce_node_id  # pyright: ignore[reportPrivateImportUsage]
from hypothesis import settings
from koordcore.service import lifecycle
from koordcore.service.telemetry.logging import set_level
from support.depth import depth, examples

pytest_plugins = ["support.durations", "support.servers"]

# Tests of forks close the sockets of the copy. If an earlier test of this process has loaded gRPC, its handler of forks
# would use them and end the copy. No service both loads gRPC and forks.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# Without the bytecode of tests and of what they start, a run takes three times as long. Many images set the variable.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What a script starts with `&` ignores SIGINT, and so do all processes that it starts. Tests end commands by Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# a shared machine makes single examples slow now and then; the timeout of pytest bounds the whole test instead
settings.register_profile("few", deadline=None, derandomize=True, max_examples=examples(100))
# In CI, a landing is judged by inputs that the one before had too. By hand, each run tries others.
settings.register_profile("deep", deadline=None, derandomize="CI" in os.environ)


SUITES = ("cluster", "compose", "deep", "kubernetes", "oracle", "runtime", "sig_scheduling")
"""Markers of tests that other runs leave out. All but `deep` need large real parts, which take minutes to build."""

SHALLOW_ELSEWHERE = ("fuzz", "hypothesis")
"""Markers of tests that try more inputs in `deep` than in other runs. hypothesis sets its own."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--suite`, with which `make test-<suite>` selects tests that other runs leave out."""
    parser.addoption("--suite", choices=SUITES, default=None, help="run this suite, and nothing else")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the depth before a module of tests is imported."""
    if config.getoption("--suite") == "deep":
        os.environ["KOORD_FUZZ"] = "deep"
    settings.load_profile("deep" if depth() == "deep" else "few")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Hide what is collected, which lives to the end, from the garbage collector, which would walk through it often."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out all suites, or all tests but the wanted suite."""
    wanted: str | None = config.getoption("--suite")
    suites = {item: [suite for suite in SUITES if item.get_closest_marker(suite)] for item in items}
    kept = [item for item in items if suites[item] == ([wanted] if wanted else [])]
    if wanted == "deep":
        more = {
            item for item in items if not suites[item] and any(map(item.get_closest_marker, ("fuzz", "hypothesis")))
        }
        kept = [item for item in items if item in more or suites[item] == [wanted]]
    left_out = set(items) - set(kept)
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = kept
    if getattr(config.option, "loadgroup", False):
        _keep_groups(items)


def _keep_groups(items: list[pytest.Item]) -> None:
    """Write the group of a test into its id: xdist 3.8 writes it where pytest 9.2 does not look any more."""
    for item in items:
        group = item.get_closest_marker("xdist_group")
        if group is not None and "@" not in item.nodeid:
            item._id = coerce_node_id(f"{item.nodeid}@{group.args[0]}")  # pyright: ignore


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print a failure with its reason at once, so that a run that is cut off has said what failed and why."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        crash = getattr(report.longrepr, "reprcrash", None)
        message: str = crash.message if crash else report.longreprtext
        print(f"\nFAILED in {report.when}: {report.nodeid}: {' '.join(message.split())[:600]}", file=sys.stderr)
        captured = ("\n".join([f"--- {title}", *text.splitlines()[-20:]]) for title, text in report.sections)
        print(report.longreprtext, *captured, sep="\n", file=sys.stderr, flush=True)


@pytest.fixture(autouse=True, scope="session")
def no_cached_loggers() -> Generator[None]:
    """What is configured holds for the loggers that exist already, too, also if the fixture of a module does it.

    A logger that kept what it was first used with would not be heard by `structlog.testing.capture_logs` in a later
    test.
    """
    configure = structlog.configure

    def configure_all(*arguments: Any, **options: Any) -> None:
        configure(*arguments, **{**options, "cache_logger_on_first_use": False})

    structlog.configure = configure_all
    yield
    structlog.configure = configure


@pytest.fixture(autouse=True, scope="session")
def no_watchdog_of_services() -> Generator[None]:
    """Keep the watchdog of a service from ending the test process on a slow machine."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lifecycle, "_WATCHDOG_SECONDS", 3600.0)
        yield


@pytest.fixture(autouse=True)
def own_logging() -> Generator[None]:
    """Each test begins with logs as no service has configured them, whatever ran in this process before."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            # Not the default formatter of exceptions: where rich is installed it writes out every local variable.
            structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(),
    )
    set_level("info")
    yield
    structlog.reset_defaults()
    set_level("info")
    root.handlers[:] = handlers
