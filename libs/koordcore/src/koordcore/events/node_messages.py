"""What a message must be to count as a fact, and the stricter rules for messages that nodes write.

A node may be in the hands of an attacker. What it writes on its own aggregates is folded by every service and stored
in Postgres, so it must be storable everywhere: bounded numbers, texts without NUL, a time that can be compared. These
rules depend on the message alone, so that every fold and every replay decides the same (`registry.Catalogue.read`).

Source: reality spec, 6.1 and 6.2.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, cast

import msgspec

from koordcore.events.envelope import (
    HEADER_ACTOR,
    HEADER_CAUSATION,
    HEADER_COPIED,
    HEADER_CORRELATION,
    HEADER_ID,
    HEADER_OCCURRED_AT,
    HEADER_TRACEPARENT,
    HEADER_TRACESTATE,
    HEADER_TYPE,
    Event,
    StoredEvent,
)
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import MAX_AMOUNT

LONGEST_NAME: Final = 253  # Largest number of characters of a node's name, and of a type in errors
LONGEST_HEADER: Final = 1024  # Largest number of characters of a header's value
LARGEST_NUMBER: Final = (1 << 63) - 1  # Largest absolute value of a number, which Postgres and a double can store

# An amount that a machine or a device can have or use, and an amount of time. A message with another one cannot be
# decoded: a negative usage would make a node lend what it does not have.
MachineAmount = Annotated[int, msgspec.Meta(ge=0, le=MAX_AMOUNT)]
MachineNumber = Annotated[float, msgspec.Meta(ge=-MAX_AMOUNT, le=MAX_AMOUNT)]  # Finite, for example a percentage

_HEADERS: Final = (HEADER_ID, HEADER_CAUSATION, HEADER_CORRELATION, HEADER_ACTOR, HEADER_TRACEPARENT, HEADER_TRACESTATE)
_SUSPICIOUS: Final = re.compile(rb"\\u0000|[0-9]{18}|[0-9][eE]")
# The form in which all services write times (`koordcore.values.timestamps.rfc3339`), so that texts compare like times.
_TIME: Final = re.compile(
    r"20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?Z"
)


def is_name(token: str) -> bool:
    """Whether the last part of a subject can be the name of something. NATS takes any byte there; readers replace what
    is no UTF-8.
    """
    return token.isprintable() and "\ufffd" not in token


def why_no_fact(stored: StoredEvent) -> str:
    """Return why a message is no fact of any kind; "" if it may be one. A fact has our envelope. An answer of the
    server has none: somebody let the server write it by a reply subject.
    """
    headers = stored.headers
    if not is_name(stored.ref.id):
        return f"its subject ends with no name: {stored.ref.id[:LONGEST_NAME]!r}"
    if headers.get(HEADER_COPIED) is not None:
        return f"it is an answer of the server: it has the header {HEADER_COPIED}"
    return "" if headers.get(HEADER_TYPE) else f"it has no envelope: the header {HEADER_TYPE} is missing"


def require_of_node(stored: StoredEvent, event: Event) -> None:
    """Check an event of a node, which was decoded.

    Raises:
        InvalidInput: An id, a header, a text or a number is one that not every reader can store or compare.
        UnicodeDecodeError: The body is not UTF-8.
    """
    if len(stored.ref.id) > LONGEST_NAME:
        raise InvalidInput(f"at most {LONGEST_NAME} characters", stored.ref.id[:LONGEST_NAME], "node")
    for name in _HEADERS:
        value = stored.headers.get(name, "")
        if len(value) > LONGEST_HEADER or not value.isprintable():
            raise InvalidInput(f"at most {LONGEST_HEADER} printable characters", value[:LONGEST_NAME], name)
    if not stored.event_id:
        raise InvalidInput("the id of the event", "", HEADER_ID)
    if not _is_time(stored.occurred_at):
        raise InvalidInput("an RFC 3339 time in UTC", stored.occurred_at[:LONGEST_NAME], HEADER_OCCURRED_AT)
    stored.body.decode()
    _require_storable_body(stored, event)


def require_storable_report(stored: StoredEvent, event: Event) -> None:
    """Check a usage report, which was decoded.

    Raises:
        InvalidInput: A text or a number in it is one that not every reader can store or compute with.
    """
    if len(stored.ref.id) > LONGEST_NAME:
        raise InvalidInput(f"at most {LONGEST_NAME} characters", stored.ref.id[:LONGEST_NAME], "node")
    _require_storable_body(stored, event)


def _require_storable_body(stored: StoredEvent, event: Event) -> None:
    if b"\0" in stored.body:
        raise InvalidInput("a text without NUL", "NUL", "body")
    # Most bodies contain nothing that could be too large, and the values need not be looked at.
    if _SUSPICIOUS.search(stored.body):
        _require_storable(msgspec.to_builtins(event), "body")


def _is_time(text: str) -> bool:
    if not _TIME.fullmatch(text):
        return False
    if text[8:10] <= "28":  # a day that every month has
        return True
    try:
        datetime.fromisoformat(text)
    except ValueError:  # 30 February
        return False
    return True


def _require_storable(value: object, path: str) -> None:
    match value:
        case str():
            if "\0" in value:
                raise InvalidInput("a text without NUL", value[:LONGEST_NAME], path)
        case int() | float():
            if not -LARGEST_NUMBER <= value <= LARGEST_NUMBER:
                raise InvalidInput(f"a number of at most {LARGEST_NUMBER}", f"{value:.3g}", path)
        case Mapping():
            for key, item in cast("Mapping[str, object]", value).items():
                _require_storable(key, path)
                _require_storable(item, f"{path}.{key}"[:LONGEST_NAME])
        case list():
            for item in cast("list[object]", value):
                _require_storable(item, path)
        case _:
            pass
