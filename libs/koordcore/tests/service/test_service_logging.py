"""Log lines: fields, levels, secrets, standard-library lines, and the two formats."""

import errno
import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from koordcore.service.telemetry.logging import LONGEST_TEXT, configure_logging, logger
from koordcore.service.telemetry.tracing import Tracer
from support.manual_clock import ManualClock

SEED = "SUAMK2FG4MI6UE3ACF3FK3OIQBCEIEZV7NSWFFEW63UXMRLFM2XLAXK4GY"


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines(out: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def configured(level: str = "info", form: str = "json") -> io.StringIO:
    out = io.StringIO()
    configure_logging(
        service="demo", instance="i1", cluster="dev", level=level, form=form, clock=ManualClock(0.0), stream=out
    )
    return out


class FullDisk(io.StringIO):
    """A file on a disk that is full from time to time. It takes the beginning of a text that does not fit."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False

    def write(self, text: str) -> int:
        if self.is_full:
            super().write(text[:5])
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_lines_that_do_not_fit_on_the_disk_are_lost_and_counted_and_end_nothing() -> None:
    out = FullDisk()
    configure_logging(service="demo", form="json", clock=ManualClock(0.0), stream=out)
    log = logger("t")
    log.info("before")
    out.is_full = True
    for _ in range(3):
        log.info("lost")
    logging.getLogger("library").warning("lost, too")
    out.is_full = False
    log.info("after")

    whole = [json.loads(line) for line in out.getvalue().splitlines() if line.endswith("}")]
    assert [line["event"] for line in whole] == ["before", "log_lines_lost", "after"]
    assert whole[1]["lines"] == 4


def test_a_line_carries_its_fields_and_the_time_of_the_run() -> None:
    out = configured()
    logger("demo.gateway").info("pod_bound", pod_uid="u1", seq=7)
    (line,) = lines(out)
    host_time = line.pop("host_time")
    assert isinstance(host_time, str)
    assert line == {
        "time": "1970-01-01T00:00:00.000000Z",
        "level": "info",
        "event": "pod_bound",
        "service": "demo",
        "instance": "i1",
        "cluster": "dev",
        "logger": "demo.gateway",
        "pod_uid": "u1",
        "seq": 7,
    }


def test_lines_inside_a_span_name_its_trace() -> None:
    out = configured()
    with Tracer("demo").span("work") as span:
        logger("demo").info("inside")
    logger("demo").info("outside")
    inside, outside = lines(out)
    assert inside["trace_id"] == span.context.trace_id
    assert "trace_id" not in outside


def test_less_than_the_level_is_not_written() -> None:
    out = configured(level="warning")
    log = logger("demo").bind(node="n-1")
    log.info("quiet")
    log.warning("loud")
    assert [(line["event"], line["level"], line["node"]) for line in lines(out)] == [("loud", "warning", "n-1")]


def test_lines_of_libraries_take_the_same_way() -> None:
    out = configured()
    logging.getLogger("some.package").warning("reconnecting to %s", "nats://user:s3cret@h:4222")
    logging.getLogger("uvicorn.error").info("chatter")
    (line,) = lines(out)
    assert line["event"] == "reconnecting to nats://**********@h:4222"
    assert (line["logger"], line["level"], line["service"]) == ("some.package", "warning", "demo")


def test_an_exception_is_written_with_its_trace_on_one_line() -> None:
    out = configured()
    try:
        raise RuntimeError("broken")
    except RuntimeError as error:
        logger("demo").error("failed", exc_info=error)
    (line,) = lines(out)
    assert "RuntimeError: broken" in str(line["exception"])


@pytest.mark.parametrize("form", ["json", "console"])
def test_secrets_do_not_reach_the_log(form: str) -> None:
    out = configured(form=form)
    log = logger("demo")
    log.info("connecting", url="nats://u:s3cret@h", nats_seed=SEED, options={"password": "s3cret", "list": [SEED]})
    log.info(f"seed {SEED}", authorization="Basic s3cret")
    text = out.getvalue()
    assert text.count("\n") >= 2
    assert "s3cret" not in text
    assert SEED not in text


@pytest.mark.parametrize("form", ["json", "console"])
def test_exceptions_show_neither_secrets_nor_local_variables(form: str) -> None:
    out = configured(form=form)

    def connect(password: str) -> None:
        raise RuntimeError(f"cannot reach nats://u:{password}@h")

    try:
        connect("".join(["s3", "cret"]))
    except RuntimeError as error:
        logger("demo").error("failed", exc_info=error)
    logging.getLogger("library").error("failed", exc_info=RuntimeError(f"bad seed {SEED}"))
    text = out.getvalue()
    assert "cannot reach nats://**********@h" in text
    assert "bad seed **********" in text
    assert "s3cret" not in text
    assert SEED not in text


def test_console_has_no_colours_outside_of_a_terminal() -> None:
    out = configured(form="console")
    logger("demo").info("pod_bound", node="n-1")
    assert "\x1b" not in out.getvalue()
    assert "pod_bound" in out.getvalue()
    assert "node=n-1" in out.getvalue()


def test_auto_is_json_outside_of_a_terminal() -> None:
    out = configured(form="auto")
    logger("demo").info("pod_bound")
    assert lines(out)[0]["event"] == "pod_bound"


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_line_is_bounded_whatever_a_sender_chose(form: str) -> None:
    out = configured(form=form)
    log = logger("demo")
    log.info("refused", name="x" * 2_000_000, objects=["y" * 2_000_000] * 3, many=list(range(1_000_000)))
    assert len(out.getvalue()) < 5 * LONGEST_TEXT
    log.info("hidden", text="x" * (LONGEST_TEXT - 10) + SEED)
    assert SEED[:12] not in out.getvalue()


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_line_gives_no_orders_to_a_terminal(form: str) -> None:
    out = configured(form=form)
    hostile = "\x1b]8;;http://evil.example\x1b\\web\r\x08\x9b2J\x7f\u202eevil\n2026-01-01 forged"
    logger("demo").info(f"event {hostile}", name=hostile, objects=[hostile], found={hostile: hostile})
    try:
        raise RuntimeError(hostile)
    except RuntimeError as error:
        logger("demo").error("failed", exc_info=error)
    assert not set(out.getvalue()) & set("\x1b\r\x08\x9b\x7f\u202e")
    assert "\n2026-01-01 forged" not in out.getvalue().partition("failed")[0]
