# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# API objects are plain JSON here, as they are on the wire.
"""Server-side validation and defaulting, as far as the project's objects can get it wrong.

Custom resources of the protocol go through `koordcore.protocol.crd`, which is tested against the vectors of structural
schemas. Those of other projects are stored as they are.
"""

import re
from typing import Any, cast

from koordcore.protocol.crd.admit import Accepted, admit
from koordcore.protocol.crd.catalogue import find_resource
from koordcore.protocol.objects import pod_from_json
from koordcore.protocol.qos import kube_qos
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import parse_value
from support.kubernetes.answers import ApiError, invalid
from support.kubernetes.resources import Json, Resource

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?")


def default_and_validate(resource: Resource, document: Json) -> Json:
    """The object as it is stored. Raises ApiError 422."""
    meta = document["metadata"]
    name = meta.get("name", "")
    if resource.plural not in ("events",) and not _NAME.fullmatch(name):
        raise invalid(resource.kind, name, "metadata.name", f'Invalid value: "{name}": a lowercase RFC 1123 subdomain')
    for key, value in (meta.get("labels") or {}).items():
        if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
            raise invalid(resource.kind, name, f"metadata.labels[{key}]", f"Invalid value: {value!r}")
    for key, value in (meta.get("annotations") or {}).items():
        if not isinstance(value, str):
            raise ApiError(400, f"json: cannot unmarshal into Go struct field annotations[{key}] of type string")
    if find_resource(resource.api_version, resource.kind) is not None:
        return _custom(resource, document)
    if resource.kind == "Pod":
        return _pod(document)
    if resource.kind == "Node":
        _quantities("Node", name, document.get("status") or {}, ("capacity", "allocatable"), "status")
    return document


def _custom(resource: Resource, document: Json) -> Json:
    found = admit(document)
    if isinstance(found, Accepted):
        return cast("Json", found.object)
    raise invalid(resource.kind, document["metadata"].get("name", ""), found.field or "<root>", found.sentence())


def _pod(document: Json) -> Json:
    name = document["metadata"]["name"]
    spec: Json = document.get("spec") or {}
    if not spec.get("containers"):
        raise invalid("Pod", name, "spec.containers", "Required value")
    for index, container in enumerate(spec["containers"]):
        where = f"spec.containers[{index}]"
        if not container.get("name"):
            raise invalid("Pod", name, f"{where}.name", "Required value")
        resources = container.get("resources") or {}
        _quantities("Pod", name, resources, ("requests", "limits"), f"{where}.resources")
        limits = resources.get("limits") or {}
        requests = resources.setdefault("requests", {}) if limits else resources.get("requests", {})
        for key, value in limits.items():
            requests.setdefault(key, value)  # a limit without a request is the request, too
            if "/" in key and not key.startswith("kubernetes.io/") and requests[key] != value:
                raise invalid("Pod", name, f"{where}.resources.requests", f"must be equal to {key} limit of {value}")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("priority", 0)
    status: Json = document.setdefault("status", {})
    status.setdefault("phase", "Pending")
    status.setdefault("qosClass", kube_qos(pod_from_json(document)))
    return document


def _quantities(kind: str, name: str, holder: Json, fields: tuple[str, ...], where: str) -> None:
    for field in fields:
        amounts: Any = holder.get(field) or {}
        for key, value in amounts.items():
            try:
                parse_value(value)
            except InvalidInput as error:
                raise invalid(kind, name, f"{where}.{field}[{key}]", error.sentence()) from error
