"""What fails for one object in the gateway is told and counted; the end of the term is no failure."""

import pytest
from koord_manager.shell.gateway.fact_appender import ErrorBoundary, NotLeading
from koordcore.service.telemetry.logging import logger
from structlog.testing import capture_logs


def test_a_failure_is_told_with_its_object_and_counted_and_nothing_else_ends() -> None:
    counted: list[str] = []
    isolated = ErrorBoundary("outbox", logger("test"), counted.append)
    with capture_logs() as lines, isolated("node/n-1"):
        raise LookupError("no such thing")

    assert counted == ["outbox"]
    (line,) = lines
    assert (line["object"], line["error"]) == ("node/n-1", "LookupError: no such thing")


def test_the_end_of_the_term_goes_through() -> None:
    with pytest.raises(NotLeading), ErrorBoundary("outbox", logger("test"))("node/n-1"):
        raise NotLeading
