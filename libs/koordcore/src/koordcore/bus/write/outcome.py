"""Meaning of the NATS server's answers to an append: the next step of the appender (table of event-bus spec, 4.3).

`append` acts on it.
"""

from enum import StrEnum
from typing import Final, NamedTuple

import msgspec


class Action(StrEnum):
    """The steps that the appender can take after an answer of the NATS server to an append."""

    STORED = "stored"  # The events are stored. Return `Appended`.
    STORED_BEFORE = "stored-before"  # An earlier attempt with the same id was stored. Return `Appended`.
    # Conflict, or the acknowledgement of our own append was lost. Read the subjects at the leader.
    READ_BACK = "read-back"
    # Another append to a subject is being stored. Wait 5 to 50 ms, then read the subjects.
    WAIT_AND_READ_BACK = "wait-and-read-back"
    READ_BACK_ALL = "read-back-all"  # The batch has an id that is already stored. Read the subject of every event.
    REPEAT = "repeat"  # The outcome is unknown or the server is not ready. Send the same bytes again after a delay.
    # The server is overloaded. Send the same bytes again after a delay, with fewer concurrent appends.
    BACK_OFF = "back-off"
    FULL = "full"  # The stream or the storage is full. Return `Full`.
    STOP = "stop"  # The server refused the append for good. Raise `Misconfigured`.


class AppendReply(msgspec.Struct, frozen=True):
    # Error code, like an HTTP status. 0: the events are stored. 503 without `err_code`: no responders. 408: no answer
    # in time.
    code: int = 0
    err_code: int = 0  # The server's own code of the error, for example 10071; 0 for none
    description: str = ""  # Text of the error
    seq: int = 0  # Sequence of the last stored event
    count: int = 0  # Number of events in a stored batch; 0 for a single append
    duplicate: bool = False  # Whether the event was already stored


class AppendReaction(NamedTuple):
    """The next step of the appender after an answer of the NATS server to an append."""

    action: Action  # Next step of the appender
    reason: str  # Codes and text of the answer, for errors and log lines; "acknowledged" if the events are stored


BATCH_TOO_LARGE: Final = 10199
_ACTIONS: dict[int, Action] = {
    10071: Action.READ_BACK,  # wrong last sequence
    10164: Action.WAIT_AND_READ_BACK,  # expected last sequence per subject is in flight
    10201: Action.READ_BACK_ALL,  # batch contains a stored id
    10158: Action.REPEAT,  # the id is in flight
    10163: Action.REPEAT,  # stream is not ready: no leader yet
    10008: Action.REPEAT,  # JetStream is not available at this moment
    10167: Action.BACK_OFF,  # too many requests
    10210: Action.BACK_OFF,  # too many batches in flight
    10211: Action.BACK_OFF,  # the same for the whole server
    10176: Action.BACK_OFF,  # batch incomplete: its beginning was shed (or lost with a connection)
    10077: Action.FULL,  # maximum bytes exceeded
    10047: Action.FULL,  # insufficient storage
    10023: Action.FULL,  # insufficient resources
    10060: Action.STOP,  # another stream
    10174: Action.STOP,  # batches are not enabled
    BATCH_TOO_LARGE: Action.STOP,
}


def classify(answer: AppendReply) -> AppendReaction:
    """Return the next step of the appender after an answer of the NATS server to an append. After an unknown error of
    the server (5xx) or an overload (429), the append is repeated. Other unknown errors end it.

    Source: event-bus spec, 4.3.
    """
    if answer.code == 0:
        return AppendReaction(Action.STORED_BEFORE if answer.duplicate else Action.STORED, "acknowledged")
    reason = f"{answer.code}/{answer.err_code} {answer.description}".strip()
    action = _ACTIONS.get(answer.err_code)
    if action is None:
        if answer.code == 429:
            action = Action.BACK_OFF
        elif answer.code >= 500 or answer.code in (408, 409):
            action = Action.REPEAT
        else:
            action = Action.STOP
    return AppendReaction(action, reason)


class _Error(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _PubAck(msgspec.Struct):
    error: _Error | None = None
    seq: int = 0
    count: int = 0
    duplicate: bool = False


_decoder = msgspec.json.Decoder(_PubAck)


def read_answer(data: bytes) -> AppendReply:
    """Decode the server's answer to an append. Invalid bytes give code 500, so that the append is repeated."""
    try:
        ack = _decoder.decode(data)
    except msgspec.DecodeError as error:
        return AppendReply(code=500, description=f"not an acknowledgement: {error}")
    if ack.error is not None:
        return AppendReply(code=ack.error.code or 500, err_code=ack.error.err_code, description=ack.error.description)
    return AppendReply(seq=ack.seq, count=ack.count, duplicate=ack.duplicate)


NO_ANSWER = AppendReply(code=408, description="no answer")
NO_RESPONDERS = AppendReply(code=503, description="no responders")
