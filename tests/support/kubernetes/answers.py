"""Errors as the Kubernetes API words them: a `Status` object with reason, code and details.

source    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
"""

from typing import Any

Json = dict[str, Any]

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class ApiError(Exception):
    """A request that is answered with a failure."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str = "",
        causes: list[Json] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after
        self.body = status(code, message, reason=reason, causes=causes, retry_after=retry_after)


def status(
    code: int, message: str, *, reason: str = "", causes: list[Json] | None = None, retry_after: int | None = None
) -> Json:
    """The Status object of a failure."""
    details: Json = {}
    if causes:
        details["causes"] = causes
    if retry_after is not None:
        details["retryAfterSeconds"] = retry_after
    body: Json = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason or REASONS.get(code, ""),
        "code": code,
    }
    if details:
        body["details"] = details
    return body


def not_found(plural: str, name: str) -> ApiError:
    """404 for one object."""
    return ApiError(404, f'{plural} "{name}" not found')


def conflict(plural: str, name: str, why: str) -> ApiError:
    """409 for one object."""
    return ApiError(409, f'Operation cannot be fulfilled on {plural} "{name}": {why}')


def invalid(kind: str, name: str, field: str, why: str) -> ApiError:
    """422 for one field."""
    return ApiError(
        422,
        f'{kind} "{name}" is invalid: {field}: {why}',
        causes=[{"reason": "FieldValueInvalid", "message": why, "field": field}],
    )


SUCCESS: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
