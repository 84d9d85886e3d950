"""A request to the API server as data, and the general meaning of its answer.

Source:
    https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from enum import StrEnum
from typing import Any, Final, NamedTuple

Json = dict[str, Any]

JSON: Final = "application/json"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"


class Request(NamedTuple):
    """One write; `purpose` is for metrics and the log, and `body` is a JSON value or None."""

    purpose: str
    method: str
    path: str
    body: object
    content_type: str = JSON


class Meaning(StrEnum):
    """The meaning of an answer to a write.

    Attributes:
        DONE: Carried out, by this or an earlier attempt.
        CONFLICT: The object has changed: read it again.
        GONE: The object, or its parent, does not exist.
        LATER: Overload, no connection, or no answer: retry.
        REFUSED: The request is invalid or forbidden.
    """

    DONE = "done"
    CONFLICT = "conflict"
    GONE = "gone"
    LATER = "later"
    REFUSED = "refused"


def meaning_of(status: int) -> Meaning:
    """Return the meaning of an HTTP status; 0 stands for no answer."""
    match status:
        case _ if 200 <= status < 300:
            return Meaning.DONE
        case 409:
            return Meaning.CONFLICT
        case 404 | 410:
            return Meaning.GONE
        case 0 | 401 | 408 | 429:
            return Meaning.LATER
        case _ if status >= 500:
            return Meaning.LATER
        case _:
            return Meaning.REFUSED
