# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# API objects are plain JSON here, as they are on the wire.
"""The patch content types of the Kubernetes API: JSON patch, JSON merge patch, strategic merge patch, apply.

source    RFC 6902, RFC 7386; https://github.com/kubernetes/community/blob/master/contributors/devel/sig-api-machinery/strategic-merge-patch.md
"""

import copy
from typing import Any, cast

import jsonpatch

Json = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "containerPort",
    "tolerations": None,
    "taints": "key",
    "ownerReferences": "uid",
    "addresses": "type",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "imagePullSecrets": "name",
}
"""List field -> merge key of its items; None: the list is replaced."""


class UnprocessablePatch(Exception):
    """The patch is well-formed, but cannot be applied (422)."""


class MalformedPatch(Exception):
    """The patch is not one of its content type (400)."""


def apply_patch(content_type: str, document: Json, patch: object) -> Json:
    """The patched copy of a document. Raises MalformedPatch, UnprocessablePatch."""
    if content_type == JSON_PATCH:
        if not isinstance(patch, list):
            raise MalformedPatch("a JSON patch is a list of operations")
        try:
            return cast("Json", jsonpatch.apply_patch(document, cast("list[Json]", patch)))  # pyright: ignore[reportUnknownMemberType]
        except jsonpatch.InvalidJsonPatch as error:
            raise MalformedPatch(str(error)) from error
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
            raise UnprocessablePatch(str(error)) from error
    if not isinstance(patch, dict):
        raise MalformedPatch("a merge patch is an object")
    if content_type == MERGE_PATCH:
        return cast("Json", merge(document, cast("Json", patch)))
    return cast("Json", strategic_merge(document, cast("Json", patch)))


def server_side_apply(document: Json, wanted: Json, before: Json) -> Json:
    """A forced server-side apply. `before`: what the same manager applied last; what it left out since is removed.

    Lists are replaced as a whole, which is right for kinds whose definition has no list with keys.
    """
    return cast("Json", merge(document, _with_removals(wanted, before)))


def _with_removals(wanted: Json, before: Json) -> Json:
    result: Json = {key: None for key in before if key not in wanted}
    for key, value in wanted.items():
        old = before.get(key)
        is_map = isinstance(value, dict) and isinstance(old, dict)
        result[key] = _with_removals(cast("Json", value), cast("Json", old)) if is_map else value
    return result


def merge(target: object, patch: object) -> object:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(cast("Json", target)) if isinstance(target, dict) else {}
    for key, value in cast("Json", patch).items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic_merge(target: object, patch: object, field: str = "") -> object:
    """Maps merge; lists of objects with a merge key merge by it (`$patch: delete` removes), others are replaced."""
    if isinstance(patch, dict):
        entries = cast("Json", patch)
        if entries.get("$patch") == "replace":
            return {key: copy.deepcopy(value) for key, value in entries.items() if key != "$patch"}
        result = dict(cast("Json", target)) if isinstance(target, dict) else {}
        for key, value in entries.items():
            if key.startswith(("$patch", "$setElementOrder/", "$retainKeys")):
                continue
            if key.startswith("$deleteFromPrimitiveList/"):
                name = key.partition("/")[2]
                result[name] = [item for item in result.get(name, []) if item not in value]
            elif value is None:
                result.pop(key, None)
            else:
                result[key] = strategic_merge(result.get(key), value, key)
        return result
    if isinstance(patch, list):
        merge_key = _MERGE_KEYS.get(field)
        items = cast("list[Any]", patch)
        if field == "finalizers":
            present = cast("list[Any]", target) if isinstance(target, list) else []
            return [*present, *(item for item in items if item not in present)]
        if merge_key is None or not isinstance(target, list):
            return [copy.deepcopy(item) for item in items if not _deletes(item)]
        return _merge_list(cast("list[Json]", target), cast("list[Json]", items), merge_key, field)
    return copy.deepcopy(patch)


def _deletes(item: object) -> bool:
    return isinstance(item, dict) and cast("Json", item).get("$patch") == "delete"


def _merge_list(target: list[Json], items: list[Json], merge_key: str, field: str) -> list[Json]:
    result = [dict(item) for item in target]
    for item in items:
        if merge_key not in item:
            raise UnprocessablePatch(f"map: {item} does not contain declared merge key: {merge_key}")
        index = next((i for i, old in enumerate(result) if old.get(merge_key) == item[merge_key]), None)
        if _deletes(item):
            if index is not None:
                del result[index]
        elif index is None:
            result.append(copy.deepcopy(item))
        else:
            result[index] = cast("Json", strategic_merge(result[index], item, field))
    return result
