"""Timing of followers (event-bus spec, 3.2)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerSettings:
    """Timing of followers, real seconds.

    Attributes:
        heartbeat_seconds: The server speaks at least so often while a request is open.
        silence_seconds: After so much silence the consumer is made anew.
        request_seconds: Life of one pull request.
        window: Messages asked for and not yet taken by the fold, at most.
        went_back_seconds: How long a stream may end before the checkpoint before that is an error (a leader catches
            up).
    """

    heartbeat_seconds: float = 1.0
    silence_seconds: float = 2.5
    request_seconds: float = 10.0
    window: int = 2000
    went_back_seconds: float = 10.0
    inactive_seconds: float = 60.0


DEFAULTS = FollowerSettings()
