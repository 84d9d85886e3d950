"""A pod that steps may change: what they write to is copied, everything else is that of the submitted pod.

An API server's pod is large and admission changes a few places of it. What both pods share is never changed, and the
comparison of the two (`patch`) passes it by.

source    manager spec, 9
"""

from typing import Any, Final, cast

from koord_manager.domain.admission.request import JsonObject

_CONTAINERS: Final = ("initContainers", "containers")


def editable(pod: JsonObject) -> JsonObject:
    """The pod with its own metadata, labels, annotations, spec, containers and their resources.

    Whatever has another shape than Kubernetes' is shared: no step gets that far.
    """
    mine = dict(pod)
    metadata, spec = pod.get("metadata"), pod.get("spec")
    if isinstance(metadata, dict):
        mine["metadata"] = _with_own(cast("JsonObject", metadata), ("labels", "annotations"))
    if isinstance(spec, dict):
        mine["spec"] = own = dict(cast("JsonObject", spec))
        for name in _CONTAINERS:
            containers = own.get(name)
            if isinstance(containers, list):
                own[name] = [_editable_container(container) for container in cast("list[Any]", containers)]
    return mine


def _editable_container(container: Any) -> Any:
    if not isinstance(container, dict):
        return container
    mine = dict(cast("JsonObject", container))
    resources = mine.get("resources")
    if isinstance(resources, dict):
        mine["resources"] = _with_own(cast("JsonObject", resources), ("requests", "limits"))
    return mine


def _with_own(holder: JsonObject, names: tuple[str, ...]) -> JsonObject:
    mine = dict(holder)
    for name in names:
        found = mine.get(name)
        if isinstance(found, dict):
            mine[name] = dict(cast("JsonObject", found))
    return mine
