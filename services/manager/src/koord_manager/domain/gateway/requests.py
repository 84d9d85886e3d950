"""A request to the API server as data, and what its answer means in general.

source    https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from enum import StrEnum
from typing import Any, Final, NamedTuple

Json = dict[str, Any]

JSON: Final = "application/json"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"


class Request(NamedTuple):
    """One write. purpose: for metrics and the log. body: JSON value, None for none."""

    purpose: str
    method: str
    path: str
    body: object
    content_type: str = JSON


class Meaning(StrEnum):
    """What an answer means to whoever sent the write.

    DONE        carried out, by this attempt or an earlier one
    CONFLICT    the object is not what was thought: look again
    GONE        the object, or what it is part of, does not exist
    LATER       not now: overload, a server that is away, an answer that was lost
    REFUSED     never: what is asked is invalid or forbidden
    """

    DONE = "done"
    CONFLICT = "conflict"
    GONE = "gone"
    LATER = "later"
    REFUSED = "refused"


def meaning_of(status: int) -> Meaning:
    """The meaning of an HTTP status. 0: there was no answer."""
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
