"""A write to the API server as a value, and the meaning of the status of its answer.

Source:
    https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from enum import StrEnum
from typing import Any, Final, NamedTuple

Json = dict[str, Any]

REQUEST_SECONDS: Final = 30.0
"""Maximum time from a request to its answer, in the host's time. Without an answer by then, the request has failed."""
JSON: Final = "application/json"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
APPLY_PARAMETERS: Final = (("fieldManager", "koordstream"), ("force", "true"))
"""Parameters of a server-side apply: the owner of the fields, who takes them from any other owner."""
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"


class Request(NamedTuple):
    # Name of the request in metrics and logs, such as `bind`. For the root quota of a profile (`create-quota`, `update-
    # quota`) it also chooses the reason of the Kubernetes event about a refusal.
    purpose: str
    method: str  # HTTP method, such as `PATCH`
    path: str  # Path at the API server, such as `/api/v1/nodes/<name>`
    body: object  # JSON value, or None for no body
    content_type: str = JSON  # Media type of the body; it tells the API server which kind of patch a `PATCH` is
    parameters: tuple[tuple[str, str], ...] = ()  # Parameters of the query


class Meaning(StrEnum):
    DONE = "done"  # The write took effect, now or in an earlier attempt
    CONFLICT = "conflict"  # The object has changed and has to be read again
    GONE = "gone"  # The object or its parent does not exist
    # The API server did not answer, is overloaded, has an internal error (5xx) or did not accept the token (401), so
    # the write has to be retried.
    LATER = "later"
    REFUSED = "refused"  # The request is not valid or not allowed, so a retry does not help


def meaning_of(status: int) -> Meaning:
    """Return the meaning of an HTTP status (0: no answer) of a write: done, conflict, gone, refused, or retry."""
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
