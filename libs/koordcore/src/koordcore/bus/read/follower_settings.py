"""Time limits and buffer size of followers, which read a stream in order (event-bus spec, 3.2)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerSettings:
    """Limits for reading a stream with a NATS consumer. Times are real seconds.

    Attributes:
        heartbeat_seconds: Interval of the server's heartbeats while a request for messages is open.
        silence_seconds: Time without a message or heartbeat after which the consumer is created again.
        request_seconds: Lifetime of one request for messages.
        window: Largest number of messages that are requested or buffered.
        went_back_seconds: If the stream ends before the last delivered event, time until this is an error. A new leader
            of the stream may need this time to catch up.
        inactive_seconds: Time without a request after which the server deletes the consumer.
    """

    heartbeat_seconds: float = 1.0
    silence_seconds: float = 2.5
    request_seconds: float = 10.0
    window: int = 2000
    went_back_seconds: float = 10.0
    inactive_seconds: float = 60.0


DEFAULTS = FollowerSettings()
