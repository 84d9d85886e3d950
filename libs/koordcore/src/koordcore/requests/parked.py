"""Body of dead letters: work items that failed too often, as messages of the stream `KOORD_DLQ_<cluster>`.

Source:
    event-bus spec, 2 (KOORD_DLQ), 8
"""

import msgspec


class Parked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A dead letter: a work item that a worker could not carry out, with the data to repeat it.

    Attributes:
        stream: Stream of the original message.
        seq: Sequence of the original message.
        consumer: Durable consumer of the worker that gave it up.
        subject: Subject of the original message.
        headers: Headers of the original message.
        body: Body of the original message.
        deliveries: Number of attempts.
        error: Error of the last attempt, one line.
        trace_id: Trace that the original belongs to; empty if none.
        parked_at: RFC 3339 time; empty if not recorded.
    """

    stream: str
    seq: int
    consumer: str
    subject: str
    headers: dict[str, str] = {}
    body: bytes = b""
    deliveries: int = 1
    error: str = ""
    trace_id: str = ""
    parked_at: str = ""
