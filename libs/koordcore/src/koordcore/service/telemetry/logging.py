"""Structured logs: each line has an event name and fields instead of prose. Secrets are hidden.

    log = logger("manager.gateway")
    log.info("pod_bound", pod_uid=uid, node=node, seq=seq)

Every line carries `time` (of the run's clock), `level`, `event`, `logger`, `service`, `instance`, `cluster`, and inside
a span its `trace_id`. Lines of libraries that use the standard logging take the same way. Configured once, by
`koordcore.service.run`. Hidden are values under secret names, key seeds, passwords in URLs, and bearer tokens.

A line that cannot be written, for example because the disk is full, is lost and ends no task. Once lines can be written
again, `log_lines_lost` tells how many were lost.
"""

import logging
import re
import sys
from collections.abc import Callable, MutableMapping
from typing import Any, Final, Protocol, TextIO, cast

import msgspec
import structlog

from koordcore.ports.clock import Clock
from koordcore.service.clock import SystemClock
from koordcore.service.telemetry.tracing import current_context
from koordcore.values.shortened import shortened
from koordcore.values.visible import visible, visible_json, visible_line

HIDDEN: Final = "**********"
LONGEST_TEXT: Final = 32_768  # Letters of each text of a line
MOST_PARTS: Final = 1000  # Members of each list and dict of a line
_LONGEST_SECRET: Final = 8192

_SECRET_NAME: Final = re.compile(
    r"(password|passwd|secret|token|seed|credential|creds|authorization|private_?key)s?$", re.I
)
_SECRET_TEXTS: Final = (
    # A NATS key seed: S, the kind of key, then base32.
    (re.compile(r"\bS[UAONCX][A-Z2-7]{54,60}\b"), HIDDEN),
    (re.compile(r"(?<=://)[^/\s@]+(?=@)"), HIDDEN),
    (re.compile(r"(?i)\b(bearer|basic)\s+[-A-Za-z0-9._~+/]{8,}=*"), rf"\1 {HIDDEN}"),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)", re.S), HIDDEN),
    (re.compile(r"\beyJ[-A-Za-z0-9_]{8,}\.[-A-Za-z0-9_]{8,}\.[-A-Za-z0-9_]*"), HIDDEN),
)
# One of these occurs in every text that the patterns above can match, but for seeds (`_MAYBE_SEED`).
_HINTS: Final = ("://", "PRIVATE", "eyJ")
_HINTS_IN_ANY_CASE: Final = ("bearer", "basic")
_MAYBE_SEED: Final = re.compile(r"S[UAONCX][A-Z2-7]{20}")


def is_secret_name(name: str) -> bool:
    """Return whether values of fields with this name are always hidden in logs. Names such as `password` are. Names
    that end with `_file` are not, because their values are paths.
    """
    return _SECRET_NAME.search(name) is not None


def redact_text(text: str) -> str:
    """Return the text with key seeds, passwords in URLs, tokens and private keys replaced by asterisks."""
    folded = text.lower()
    if (
        not any(hint in text for hint in _HINTS)
        and not any(hint in folded for hint in _HINTS_IN_ANY_CASE)
        and _MAYBE_SEED.search(text) is None
    ):
        return text
    for pattern, replacement in _SECRET_TEXTS:
        text = pattern.sub(replacement, text)
    return text


def redact(value: object) -> object:
    """Return a copy of the value with secrets replaced by asterisks at any depth of lists and dicts. Values that are
    neither text nor containers stay unchanged.
    """
    match value:
        case str():
            return redact_text(value)
        case dict():
            return {
                key: HIDDEN if isinstance(key, str) and is_secret_name(key) else redact(part)
                for key, part in cast("dict[object, object]", value).items()
            }
        case list() | tuple():
            return [redact(part) for part in cast("list[object]", value)]
        case _:
            return value


Fields = MutableMapping[str, Any]  # structlog's own event dictionary

_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_QUIET: Final = ("uvicorn.error", "uvicorn.access", "httpx", "httpcore", "asyncio", "nats", "opentelemetry")


class _Adjustable(structlog.make_filtering_bound_logger(_LEVELS["info"])):  # type: ignore[misc]  # pyright: ignore[reportUntypedBaseClass]  made by structlog
    """The class of all loggers. Its methods are replaced when the level changes, also for existing loggers."""


class Logger(Protocol):
    """Interface of loggers: each call writes one line with an event name and fields."""

    def debug(self, event: str, /, **fields: object) -> object:
        """Log details for debugging."""
        ...

    def info(self, event: str, /, **fields: object) -> object:
        """Log a line at level info: the result of a cycle, or news for an operator."""
        ...

    def warning(self, event: str, /, **fields: object) -> object:
        """Log a problem that resolves itself but should not happen often."""
        ...

    def error(self, event: str, /, **fields: object) -> object:
        """Log a problem that needs attention. `exc_info=error` adds the trace of an exception."""
        ...

    def bind(self, **fields: object) -> "Logger":
        """Return a logger that adds these fields to every line."""
        ...


def logger(name: str) -> Logger:
    """Return the logger with this name. It may be created before logging is configured; call `bind` only afterwards."""
    return cast("Logger", structlog.get_logger(name, logger_name=name))


class LossyStream:
    """A text stream that loses what it cannot write.

    Args:
        out: Where texts are written.
        lost_line: Returns the line about a number of lost texts. It is written before the next text.
    """

    def __init__(self, out: TextIO, lost_line: Callable[[int], str]) -> None:
        self._out = out
        self._lost_line = lost_line
        self._lost = 0

    def write(self, text: str) -> int:
        try:
            if self._lost:
                # The last text may have been written in part.
                self._out.write(f"\n{self._lost_line(self._lost)}\n")
                self._out.flush()
                self._lost = 0
            self._out.write(text)
            self._out.flush()
        except OSError:
            self._lost += 1
        return len(text)

    def flush(self) -> None:
        """Nothing is left to write: `write` flushes each text."""


def configure_logging(
    *,
    service: str,
    instance: str = "",
    cluster: str = "",
    level: str = "info",
    form: str = "auto",
    clock: Clock | None = None,
    stream: TextIO | None = None,
) -> None:
    """Send every log line of the process, also those of libraries, to one stream.

    Args:
        service: Name of the service, in every line.
        instance: Name of the instance, in every line; "" for none.
        cluster: Id of the cluster, in every line; "" for none.
        level: debug, info, warning or error. Libraries log one level less: their info appears only at debug.
        form: json, console, or auto (console if the stream is a terminal). Colours only on a terminal.
        clock: Clock of the field `time`; None: the host's.
        stream: Destination; None: stderr.
    """
    out = sys.stderr if stream is None else stream
    on_terminal = out.isatty()
    as_json = form == "json" or (form == "auto" and not on_terminal)
    run_clock: Clock = clock or SystemClock()
    scaled = not isinstance(run_clock, SystemClock)
    constant = {"service": service, "instance": instance, "cluster": cluster}
    host = SystemClock()

    def add_fields(_logger: object, method: str, fields: Fields) -> Fields:
        # In the order in which a person reads a JSON line.
        line: Fields = {
            "time": _stamp(run_clock),
            "level": fields.pop("level", method),
            "event": fields.pop("event", ""),
            "logger": fields.pop("logger_name", fields.pop("logger", "")),
            **(constant if as_json else {}),
        }
        if scaled and as_json:
            line["host_time"] = _stamp(host)
        if (context := current_context()) is not None:
            line["trace_id"] = context.trace_id
        line.update(fields)
        return line

    render = _render_json if as_json else _console(on_terminal)

    def lost_line(lines: int) -> str:
        return str(render(None, "", add_fields(None, "warning", {"event": "log_lines_lost", "lines": lines})))

    written = LossyStream(out, lost_line)
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        add_fields,
        structlog.processors.format_exc_info,  # before the redaction: the text of an exception may hold a secret
        _hide_secrets,
        *([] if as_json else [_show_controls]),
        render,
    ]
    structlog.configure(
        processors=shared,
        wrapper_class=_Adjustable,
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", written)),
        cache_logger_on_first_use=stream is None,
    )
    handler = logging.StreamHandler(written)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_log_level, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *shared],
        )
    )
    root = logging.getLogger()
    for old in root.handlers[:]:
        if getattr(old, "koord", False):
            root.removeHandler(old)
    handler.koord = True  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]  ours, to replace it on reconfiguration
    root.addHandler(handler)
    set_level(level)


def set_level(level: str) -> None:
    """Change the level of all loggers, also of existing ones. The levels are those of `configure_logging`."""
    methods = vars(structlog.make_filtering_bound_logger(_LEVELS[level]))
    for name, method in methods.items():
        if not name.startswith("__"):
            setattr(_Adjustable, name, method)
    logging.getLogger().setLevel(_LEVELS[level])
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.DEBUG if level == "debug" else max(logging.WARNING, _LEVELS[level]))


def _console(colors: bool) -> structlog.dev.ConsoleRenderer:
    # Not the default formatter of exceptions: where rich is installed it shows the values of local variables.
    return structlog.dev.ConsoleRenderer(
        colors=colors, timestamp_key="time", exception_formatter=structlog.dev.plain_traceback
    )


def _stamp(clock: Clock) -> str:
    return clock.now().isoformat(timespec="microseconds").replace("+00:00", "Z")


def _hide_secrets(_logger: object, _method: str, fields: Fields) -> Fields:
    for name, value in fields.items():
        if is_secret_name(name):
            fields[name] = HIDDEN
        elif isinstance(value, (str, dict, list, tuple)):
            fields[name] = _bounded(redact(_bounded(cast("object", value), LONGEST_TEXT + _LONGEST_SECRET)))
    return fields


def _bounded(value: object, longest: int = LONGEST_TEXT) -> object:
    """Return a copy of the value with long texts, lists and dicts cut, because senders of requests choose some of them.
    A secret at the end of a text must not be cut, since a part of it would not be recognized: the first call leaves
    room for it.
    """
    match value:
        case str():
            return shortened(value, longest)
        case dict():
            parts = list(cast("dict[object, object]", value).items())
            return {key: _bounded(part, longest) for key, part in parts[:MOST_PARTS]}
        case list() | tuple():
            members = cast("list[object]", value)
            more = [f"and {len(members) - MOST_PARTS:,} more"] if len(members) > MOST_PARTS else []
            return [*(_bounded(part, longest) for part in members[:MOST_PARTS]), *more]
        case _:
            return value


def _show_controls(_logger: object, _method: str, fields: Fields) -> Fields:
    """Make control characters visible: a line of the log cannot give orders to the terminal that shows it."""
    for name, value in fields.items():
        if name in ("exception", "stack"):
            fields[name] = visible(str(value))
        elif isinstance(value, str):
            fields[name] = visible_line(value)
        elif isinstance(value, (list, dict)):
            fields[name] = visible_line(str(cast("object", value)))
    return fields


def _render_json(_logger: object, _method: str, fields: Fields) -> str:
    return visible_json(msgspec.json.encode(fields, enc_hook=str).decode())
