"""Definition of endpoints (a service answers at once) and work queues (a worker acts later), headers, error replies."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeVar

import msgspec

Q = TypeVar("Q", bound=msgspec.Struct)  # Type of the body of a request
A = TypeVar("A", bound=msgspec.Struct)  # Type of the body of an answer

# Header with the idempotency key: requests with the same key are carried out once and get the same answer.
REQUEST_ID: Final = "Koord-Request-Id"
# Header with the name of the NATS user that asks, for the audit. Only users with the right to ask can set it.
SUBJECT: Final = "Koord-Subject"
TIMEOUT: Final = "Koord-Timeout"  # Header with the seconds that the caller waits for the answer, e.g. `2.5`.
ERROR: Final = "Koord-Error"  # Header of an error reply: its `ErrorCode`. The body is an `ErrorReply`.


class ErrorCode(StrEnum):
    """Kinds of errors with which a service answers a request."""

    INVALID = "invalid"  # The request cannot be decoded or contains an invalid value. Do not repeat it.
    UNAVAILABLE = "unavailable"  # The service cannot answer now. Repeat the request later.
    DEADLINE = "deadline"  # The service did not finish within the caller's timeout
    INTERNAL = "internal"  # The service failed. Its log lines have the details.


class ErrorReply(msgspec.Struct, frozen=True):
    """Body of the answer to a request that failed."""

    code: ErrorCode  # Kind of error
    message: str  # What went wrong, one sentence for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Generic[Q, A]):
    """A kind of request that one service answers at once, with the types of request and answer."""

    service: str  # Name of the service that answers
    verb: str  # Name of the request, in lower case with `_`
    request: type[Q]  # Type of the body of a request
    answer: type[A]  # Type of the body of an answer
    summary: str  # One sentence for the AsyncAPI document
    prefers_standby: bool = False  # Whether an instance that does not lead answers if there is one
    is_audited: bool = False  # Whether a request leaves an audit record: it changes something, or costs a lot
    is_dry_run: bool = False  # Whether it computes what would happen, and changes nothing

    @property
    def address(self) -> str:
        """Subject of the requests, without the prefix `koord.<cluster>.`."""
        return f"req.{self.service}.{self.verb}"

    @property
    def standby_address(self) -> str:
        """Subject of the requests to instances that do not lead, without the prefix `koord.<cluster>.`."""
        return f"{self.address}_standby"

    @property
    def addresses(self) -> tuple[str, ...]:
        """Subjects of the endpoint in the order in which a caller tries them, without the prefix `koord.<cluster>.`."""
        return (self.standby_address, self.address) if self.prefers_standby else (self.address,)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkQueue(Generic[Q]):
    """A kind of request that is stored until a worker of a service has carried it out, or becomes a dead letter."""

    service: str  # Name of the service whose workers carry it out
    verb: str  # Name of the work, in lower case with `_`
    request: type[Q]  # Type of the body of a request
    summary: str  # One sentence for the AsyncAPI document
    # Time after which a request is delivered again that was not acknowledged. A worker acknowledges it after its
    # effect.
    ack_wait_seconds: float = 60.0
    max_deliver: int = 8  # Largest number of deliveries of a request. After the last one it becomes a dead letter.

    @property
    def address(self) -> str:
        """Subject of the requests, without the prefix `koord.<cluster>.`."""
        return f"cmd.{self.service}.{self.verb}"
