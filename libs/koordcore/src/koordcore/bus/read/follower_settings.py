"""Time limits of followers (event-bus spec, 3.2)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerSettings:
    """Time limits of followers in real seconds.

    Attributes:
        heartbeat_seconds: Interval of the server's heartbeats while a pull request is open.
        silence_seconds: Time without a message after which the consumer is created again.
        request_seconds: Lifetime of one pull request.
        window: Largest number of messages that are requested or buffered.
        went_back_seconds: Time for which a stream may end before the checkpoint until it is an error. A new leader may
            need this time to catch up.
    """

    heartbeat_seconds: float = 1.0
    silence_seconds: float = 2.5
    request_seconds: float = 10.0
    window: int = 2000
    went_back_seconds: float = 10.0
    inactive_seconds: float = 60.0


DEFAULTS = FollowerSettings()
