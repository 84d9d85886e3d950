"""Body of dead letters: work items that failed too often, as messages of the stream `KOORD_DLQ_<cluster>`.

Source: event-bus spec, 2 (KOORD_DLQ), 8.
"""

import hashlib

import msgspec

from koordcore.values import codec


class Parked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A dead letter: a work item that a worker could not carry out, with the data to repeat it."""

    stream: str  # Stream of the original message
    seq: int  # Sequence of the original message
    consumer: str  # Durable consumer of the worker that gave it up
    subject: str  # Subject of the original message
    headers: dict[str, str] = {}  # Headers of the original message
    body: bytes = b""  # Body of the original message, or its beginning if `full_size` is not 0
    deliveries: int = 1  # Number of attempts
    error: str = ""  # Error of the last attempt, one line
    trace_id: str = ""  # Trace that the original belongs to; empty if none
    parked_at: str = ""  # RFC 3339 time; empty if not recorded
    full_size: int = 0  # Bytes of the original body if the dead letter would be too large with it; 0: `body` is whole
    full_sha256: str = ""  # SHA-256 of the original body in hexadecimal digits; empty if `body` is whole


def encoded_within(parked: Parked, most: int) -> bytes:
    """Encode a dead letter. If it is too large, keep only the beginning of its body and error, and no long headers.

    A body takes a third more bytes as a dead letter than as a request, so a large request may be too large.

    Args:
        most: Largest number of bytes of the result. There must be room for stream, consumer and subject.
    """
    encoded = codec.encode(parked)
    if len(encoded) <= most:
        return encoded
    kept, is_whole = parked.body[: most // 8], len(parked.body) <= most // 8
    cut = msgspec.structs.replace(
        parked,
        headers=parked.headers if len(codec.encode(parked.headers)) <= most // 8 else {},
        body=kept,
        error=parked.error[: most // 32],  # a character may take six bytes in JSON
        full_size=0 if is_whole else len(parked.body),
        full_sha256="" if is_whole else hashlib.sha256(parked.body).hexdigest(),
    )
    return codec.encode(cut)
