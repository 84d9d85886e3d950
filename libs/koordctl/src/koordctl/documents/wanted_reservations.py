"""Reservations for the pods of a workload: the documents that `koord reserve` writes. Pure."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

from koordcore.protocol import keys
from koordcore.values.invalid import InvalidInput

API_VERSION: Final = "scheduling.koordinator.sh/v1alpha1"
_CONTAINER: Final = "reserved"
_KEPT_OF_SPEC: Final = (
    "affinity", "nodeSelector", "tolerations", "priorityClassName", "priority", "schedulerName",
    "topologySpreadConstraints",
)  # fmt: skip
"""Fields of a pod that decide where it may run, besides its requests."""

_OWN: Final = "scheduling.koordinator.sh"
"""Domain of the annotations that ask for CPUs, zones and devices."""
_GIVEN: Final = (keys.RESOURCE_STATUS, keys.DEVICE_ALLOCATED, keys.RESERVATION_ALLOCATED, keys.RESERVATION_AFFINITY)
"""Annotations of this domain that say what a pod got, or which Reservation it needs."""


class Wanted(NamedTuple):
    """The Reservations that a user wants: their number, amounts, lifetime and policy.

    Attributes:
        name: Name of the Reservations; with several, each gets its number as a suffix.
        number: Number of Reservations.
        amounts: Resource -> quantity that replaces the one in the template, such as {"cpu": "8"}.
        ttl: Go duration after which a Reservation expires; "0s" for never.
        is_reusable: Whether several pods may use one Reservation, one after the other or together.
        policy: Aligned, Restricted, or empty for the default.
    """

    name: str
    number: int
    amounts: Mapping[str, str]
    ttl: str
    is_reusable: bool = False
    policy: str = ""


def reservations_for(workload: Mapping[str, Any], wanted: Wanted) -> Iterator[dict[str, Any]]:
    """Yield one Reservation document for each wanted Reservation.

    Pods of a controller may use them if they have its namespace and the labels of its selector. A Reservation for a Pod
    is for the pod of this name alone.

    Args:
        workload: A Pod, or an object with a pod template and a selector.
        wanted: Number, amounts, lifetime and policy of the Reservations.

    Raises:
        InvalidInput: The object has no pod template, or nothing would be reserved.
    """
    meta, spec = _object(workload, "metadata"), _object(workload, "spec")
    namespace = str(meta.get("namespace") or "default")
    is_pod = workload.get("kind") == "Pod"
    template = workload if is_pod else _object(spec, "template")
    if not template:
        raise InvalidInput("an object with a pod template", workload.get("kind"), "spec.template")
    selector = _object(spec, "selector") or {"matchLabels": _object(_object(template, "metadata"), "labels")}
    owner: dict[str, Any] = {"object": {"namespace": namespace}, "labelSelector": selector}
    if is_pod:
        owner = {"object": {"namespace": namespace, "name": meta["name"]}}
    for index in range(wanted.number):
        fields: dict[str, Any] = {
            "ttl": wanted.ttl,
            "allocateOnce": not wanted.is_reusable,
            "owners": [copy.deepcopy(owner)],
            "template": _template(template, namespace, wanted.amounts),
        }
        if wanted.policy:
            fields["allocatePolicy"] = wanted.policy
        name = wanted.name if wanted.number == 1 else f"{wanted.name}-{index + 1}"
        yield {"apiVersion": API_VERSION, "kind": "Reservation", "metadata": {"name": name}, "spec": fields}


def _template(template: Mapping[str, Any], namespace: str, amounts: Mapping[str, str]) -> dict[str, Any]:
    """Return the pod template of a Reservation: the fields that decide about its node, and its requests.

    Args:
        template: Pod template of the workload.
        namespace: Namespace of the workload.
        amounts: Resource -> quantity that replaces the requests of the template; empty keeps them.
    """
    meta, spec = _object(template, "metadata"), _object(template, "spec")
    written = cast("list[dict[str, Any]]", spec.get("containers") or [])
    containers = [{"name": each["name"], "resources": each["resources"]} for each in written if each.get("resources")]
    if amounts:
        own = _object(_object(written[0], "resources"), "requests") if len(written) == 1 else {}
        containers = [{"name": _CONTAINER, "resources": {"requests": {**own, **amounts}}}]
    if not containers:
        raise InvalidInput("given, because the template requests nothing", None, "--cpu or --memory")
    metadata: dict[str, Any] = {"namespace": namespace}
    if _object(meta, "labels"):
        metadata["labels"] = meta["labels"]
    notes = _object(meta, "annotations")
    asked = {key: value for key, value in notes.items() if key.partition("/")[0] == _OWN and key not in _GIVEN}
    if asked:
        metadata["annotations"] = asked
    kept = {name: spec[name] for name in _KEPT_OF_SPEC if spec.get(name) is not None}
    return {"metadata": metadata, "spec": {**kept, "containers": containers}}


def _object(holder: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Return an object inside another one; empty if it is absent."""
    return cast("dict[str, Any]", holder.get(field) or {})
