"""Read and write AdmissionReviews of `admission.k8s.io/v1` and `v1beta1`.

Source:
    manager spec, 7.1
"""

import binascii
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.text_limits import check_json

from koord_manager.domain.admission.request import Operation, Request

VERSIONS: Final = ("admission.k8s.io/v1", "admission.k8s.io/v1beta1")
REFUSED: Final = 400
INTERNAL: Final = 500
_OPERATIONS: Final = {str(operation): operation for operation in Operation}
_REASONS: Final = {REFUSED: "BadRequest", INTERNAL: "InternalError"}


class _Resource(msgspec.Struct):
    group: str = ""
    version: str = ""
    resource: str = ""


class _User(msgspec.Struct):
    username: str = ""


class _Request(msgspec.Struct, rename="camel"):
    uid: str
    operation: str
    resource: _Resource = msgspec.field(default_factory=_Resource)
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: _User = msgspec.field(default_factory=_User)
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    dry_run: bool | None = None


class _Review(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    request: _Request


class Asked(msgspec.Struct, frozen=True):
    api_version: str  # Version of the AdmissionReview, which the answer has to have too
    request: Request


_decoder = msgspec.json.Decoder(_Review)


def read_review(body: bytes) -> Asked:
    """Decode the JSON body of an AdmissionReview, of `admission.k8s.io/v1` or `v1beta1`.

    Raises:
        InvalidInput: The body is not an AdmissionReview of one of these versions.
    """
    try:
        check_json(body)
        review = _decoder.decode(body)
    except InvalidInput as error:
        raise error.at("body") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"an AdmissionReview ({error})", body[:80].decode("utf-8", "replace"), "body") from error
    if review.kind != "AdmissionReview" or review.api_version not in VERSIONS:
        raise InvalidInput(
            f"an AdmissionReview of {' or '.join(VERSIONS)}", f"{review.api_version} {review.kind}", "body"
        )
    asked = review.request
    operation = _OPERATIONS.get(asked.operation)
    if operation is None:
        raise InvalidInput(f"one of {', '.join(Operation)}", asked.operation, "request.operation")
    request = Request(
        uid=asked.uid,
        operation=operation,
        resource=asked.resource.resource,
        subresource=asked.sub_resource,
        namespace=asked.namespace,
        name=asked.name,
        object=asked.object,
        old_object=asked.old_object,
        dry_run=bool(asked.dry_run),
        user=asked.user_info.username,
    )
    return Asked(review.api_version, request)


def write_review(
    asked: Asked,
    *,
    allowed: bool,
    message: str = "",
    code: int = REFUSED,
    patch: list[dict[str, Any]] | None = None,
    warnings: Sequence[str] = (),
) -> bytes:
    """Return the JSON of the AdmissionReview that answers a request.

    `code`: HTTP status of a denial. `patch`: RFC 6902 operations, or None. The API server truncates long warnings.
    """
    response: dict[str, Any] = {"uid": asked.request.uid, "allowed": allowed}
    if not allowed:
        response["status"] = {"code": code, "message": message, "reason": _REASONS.get(code, "")}
    elif patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = binascii.b2a_base64(codec.encode(patch), newline=False).decode()
    if warnings:
        response["warnings"] = list(warnings)
    return codec.encode({"apiVersion": asked.api_version, "kind": "AdmissionReview", "response": response})
