"""Copy the parts of a pod that the steps of admission may change; the rest is shared with the submitted pod.

Pods of an API server are large, and admission changes a few fields. The shared part is never changed, so the comparison
in `json_patch` skips it.

Source:
    manager spec, 9
"""

from typing import Any, Final, cast

from koord_manager.domain.admission.request import JsonObject

_CONTAINERS: Final = ("initContainers", "containers")


def editable(pod: JsonObject) -> JsonObject:
    """Return a pod whose metadata, labels, annotations, spec, containers and their resources are copies.

    All other parts are shared with the argument. A value of the wrong shape is shared too, because the steps deny it
    before they change it.
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
