"""Fixtures for every test of the workspace.

The real servers of `tests/support/servers.py`, fresh logging, and the settings of property tests.
"""

import logging
import os
import signal
import sys
from collections.abc import Generator
from typing import Any

import pytest
import structlog
from hypothesis import settings
from koordcore.service import lifecycle
from koordcore.service.telemetry.logging import set_level

pytest_plugins = ["support.servers"]

# Tests of forks close the sockets of the copy. If an earlier test of this process has loaded gRPC, its handler of forks
# would use them and end the copy. No service both loads gRPC and forks.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# What a script starts with `&` ignores SIGINT, and so do all processes that it starts. Tests end commands by Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# a shared machine makes single examples slow now and then; the timeout of pytest bounds the whole test instead
settings.register_profile("workspace", deadline=None)
settings.load_profile("workspace")


SUITES = ("compose", "kubernetes", "runtime")
"""Markers of tests on large real parts, which take minutes to build; `make test-<suite>` runs them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--suite`, with which `make test-<suite>` selects tests that other runs leave out."""
    parser.addoption("--suite", choices=SUITES, default=None, help="run this suite on real parts, and nothing else")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the suites on real parts, or all tests but the wanted suite."""
    wanted: str | None = config.getoption("--suite")
    kept = [item for item in items if [suite for suite in SUITES if item.get_closest_marker(suite)] == [wanted]]
    if wanted is None:
        kept = [item for item in items if not any(item.get_closest_marker(suite) for suite in SUITES)]
    left_out = set(items) - set(kept)
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = kept


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
