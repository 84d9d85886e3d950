"""The defaults that an API server sets in a pod when it decodes it, as far as placement reads them.

They are set before admission, and again after webhooks have changed the pod. An API server does not set them in the pod
templates of workloads: the pods made from these get them. A volume without a source, which is an emptyDir there, stays
as it is: stored templates have lost most kinds of sources.

Source: reality spec, 1.1, 1.2; Kubernetes, SetDefaults_Pod; KEP-2837.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast

from koordcore.protocol.objects import pod_from_json
from koordcore.protocol.pod_resources import MEMORY, pod_limits_nano, pod_requests_nano
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import Notation, Quantity
from koordcore.values.resources import CPU

JsonObject: TypeAlias = dict[str, Any]

_HUGEPAGES: Final = "hugepages-"


def with_pod_defaults(pod: JsonObject) -> JsonObject:
    """Return a pod, or a pod template, with the defaults in its `spec`. The argument is never changed.

    A pod that has them all is returned itself. A part of a wrong type stays as it is: who decodes the pod refuses it.
    """
    spec = _object(pod.get("spec"))
    if not spec:
        return pod
    changed = _spec(spec)
    return pod if changed is spec else {**pod, "spec": changed}


def _spec(spec: JsonObject) -> JsonObject:
    """Return the spec of a pod with its defaults.

    1. Of each container and init container: each resource with a limit and without a request is requested as limited.
    2. Of the pod itself, if `resources` has limits: see `_pod_level`.
    3. With `hostNetwork`: a port without `hostPort` gets that of the container.
    """
    on_host = spec.get("hostNetwork") is True
    for field in ("containers", "initContainers"):
        spec = _each(spec, field, lambda container: _container(container, on_host=on_host))
    return _pod_level(spec) if spec.get("resources") else spec


def _each(holder: JsonObject, field: str, change: Callable[[JsonObject], JsonObject]) -> JsonObject:
    """Return `holder` with each object of a list changed; itself if no object changes."""
    listed = holder.get(field)
    if not isinstance(listed, list):
        return holder
    before = cast("list[object]", listed)
    after = [change(cast("JsonObject", item)) if isinstance(item, dict) else item for item in before]
    if all(one is other for one, other in zip(before, after, strict=True)):
        return holder
    return {**holder, field: after}


def _container(container: JsonObject, *, on_host: bool) -> JsonObject:
    resources = _object(container.get("resources"))
    limits, requests = _object(resources.get("limits")), _object(resources.get("requests"))
    missing = {name: limit for name, limit in limits.items() if requests.get(name) is None and limit is not None}
    if missing:
        container = {**container, "resources": {**resources, "requests": {**requests, **missing}}}
    return _each(container, "ports", _host_port) if on_host else container


def _host_port(port: JsonObject) -> JsonObject:
    number = port.get("containerPort")
    return port if port.get("hostPort") or not number else {**port, "hostPort": number}


def _pod_level(spec: JsonObject) -> JsonObject:
    """Return the spec with the pod's own requests completed, if it limits or requests anything itself.

    1. Hugepages that the containers limit, and the pod neither limits nor requests: the containers' sum is its limit.
    2. If the pod has limits: cpu and memory that the containers request are its request, as their effective sum.
    3. Each other resource that the pod limits, and neither requests, is requested as limited.
    """
    resources = _object(spec.get("resources"))
    limits, requests = _without_nulls(resources.get("limits")), _without_nulls(resources.get("requests"))
    if not limits and not requests:
        return spec
    try:
        pod = pod_from_json({"spec": {**spec, "resources": None, "overhead": None}})
        pages = _amounts(pod_limits_nano(pod), lambda name: name.startswith(_HUGEPAGES))
        used = _amounts(pod_requests_nano(pod), lambda name: name in (CPU, MEMORY))
    except (codec.DecodeError, InvalidInput, RecursionError, OverflowError):
        return spec
    limits = {**{name: amount for name, amount in pages.items() if name not in requests}, **limits}
    if limits:
        own = {name: limit for name, limit in limits.items() if name in (CPU, MEMORY) or name.startswith(_HUGEPAGES)}
        requests = {**own, **used, **requests}
    if limits == resources.get("limits") and requests == resources.get("requests"):
        return spec
    return {**spec, "resources": {**resources, "limits": limits, "requests": requests}}


def _amounts(nanos: Mapping[str, int], is_wanted: Callable[[str], bool]) -> dict[str, str]:
    notations = {CPU: Notation.DECIMAL}
    return {
        name: Quantity(nano, notations.get(name, Notation.BINARY)).canonical()
        for name, nano in nanos.items()
        if is_wanted(name)
    }


def _without_nulls(value: object) -> JsonObject:
    return {name: item for name, item in _object(value).items() if item is not None}


def _object(value: object) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}
