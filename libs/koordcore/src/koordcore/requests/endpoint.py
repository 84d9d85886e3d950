"""What an endpoint and a work queue are, and the headers and error replies that all of them share."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeVar

import msgspec

Q = TypeVar("Q", bound=msgspec.Struct)
"""Body of a request."""
A = TypeVar("A", bound=msgspec.Struct)
"""Body of an answer."""

REQUEST_ID: Final = "Koord-Request-Id"
"""Header with the idempotency key: requests with the same key are carried out once and get the same answer."""
TIMEOUT: Final = "Koord-Timeout"
"""Header with the seconds that the caller waits for the answer, e.g. `2.5`."""
ERROR: Final = "Koord-Error"
"""Header of an error reply: its `ErrorCode`. The body is an `ErrorReply`."""


class ErrorCode(StrEnum):
    """Kinds of error replies."""

    INVALID = "invalid"
    """The request cannot be read or names something that cannot be; do not repeat it."""
    UNAVAILABLE = "unavailable"
    """The service cannot answer now; repeat it later."""
    DEADLINE = "deadline"
    """The service did not finish within the caller's timeout."""
    INTERNAL = "internal"
    """An error of the service; its log has the details."""


class ErrorReply(msgspec.Struct, frozen=True):
    """Body of a reply that is not an answer.

    Attributes:
        code: Kind of error.
        message: One sentence for a person.
    """

    code: ErrorCode
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Generic[Q, A]):
    """A question that a service answers at once, as a request and a reply.

    Attributes:
        service: Name of the service that answers.
        verb: Name of the question, in lower case with `_`.
        request: Type of the body of a request.
        answer: Type of the body of an answer.
        summary: One sentence for the AsyncAPI document.
    """

    service: str
    verb: str
    request: type[Q]
    answer: type[A]
    summary: str

    @property
    def address(self) -> str:
        """The subject behind `koord.<cluster>.`."""
        return f"req.{self.service}.{self.verb}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkQueue(Generic[Q]):
    """Requests that are kept until a worker has carried them out, or that are parked after too many failures.

    Attributes:
        service: Name of the service whose workers carry them out.
        verb: Name of the work, in lower case with `_`.
        request: Type of the body of a request.
        summary: One sentence for the AsyncAPI document.
    """

    service: str
    verb: str
    request: type[Q]
    summary: str

    @property
    def address(self) -> str:
        """The subject behind `koord.<cluster>.`."""
        return f"cmd.{self.service}.{self.verb}"
