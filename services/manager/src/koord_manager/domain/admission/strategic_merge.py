"""Apply a strategic merge patch of Kubernetes to a pod or to an object with a pod template.

Objects are merged key by key, and null deletes a key. A list replaces a list, except the lists that Kubernetes merges
by a key of their items. The directives are `$patch` (replace, delete, merge), `$deleteFromPrimitiveList/<list>`,
`$retainKeys` and `$setElementOrder/<list>`.

Source:
    manager spec, 8.2 (4); Kubernetes' patchStrategy and patchMergeKey tags of v1.PodSpec
"""

from typing import Any, Final, cast

from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.request import JsonObject

_CONTAINER: Final = {
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
}
_MERGE_KEYS: Final[dict[str, str]] = {
    "metadata.ownerReferences": "uid",
    "spec.containers": "name",
    "spec.initContainers": "name",
    "spec.ephemeralContainers": "name",
    **{
        f"spec.{containers}.{name}": key
        for containers in ("containers", "initContainers", "ephemeralContainers")
        for name, key in _CONTAINER.items()
    },
    "spec.volumes": "name",
    "spec.imagePullSecrets": "name",
    "spec.hostAliases": "ip",
    "spec.topologySpreadConstraints": "topologyKey",
    "spec.schedulingGates": "name",
    "spec.resourceClaims": "name",
    "status.conditions": "type",
    "status.podIPs": "ip",
    "status.hostIPs": "ip",
}
"""Path of a list in a pod (without indexes) -> key by which its items are merged."""
_MERGED_TEXTS: Final = frozenset(("metadata.finalizers",))
_TEMPLATE: Final = "spec.template."
_PATCH: Final = "$patch"
_DELETE_PREFIX: Final = "$deleteFromPrimitiveList/"
_ORDER_PREFIX: Final = "$setElementOrder/"
_RETAIN: Final = "$retainKeys"


def strategic_merge(original: JsonObject, patch: JsonObject) -> JsonObject:
    """Return the object with the patch applied; neither argument is changed.

    Raises:
        InvalidInput: A directive is not valid, or an item of a keyed list has no key. The message contains no values
            of the patch, which may be secret.
    """
    return _merged(original, patch, "")


def _merged(original: JsonObject, patch: JsonObject, path: str) -> JsonObject:
    directive = patch.get(_PATCH)
    if directive == "replace":
        return {name: _plain(value) for name, value in patch.items() if name != _PATCH}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        told = directive if isinstance(directive, str) else _shown(directive)
        raise InvalidInput("replace, delete or merge", told, f"patch.{path}{_PATCH}")
    result: JsonObject = dict(original)
    if _RETAIN in patch:
        kept = _names(patch[_RETAIN], f"{path}{_RETAIN}")
        result = {name: value for name, value in result.items() if name in kept}
    for name, value in patch.items():
        if name in (_PATCH, _RETAIN) or name.startswith((_DELETE_PREFIX, _ORDER_PREFIX)):
            continue
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _value(result.get(name), value, f"{path}{name}")
    for name, value in patch.items():
        if name.startswith(_DELETE_PREFIX):
            _delete_from(result, name.removeprefix(_DELETE_PREFIX), _plain_items(value, f"{path}{name}"))
        elif name.startswith(_ORDER_PREFIX):
            field = name.removeprefix(_ORDER_PREFIX)
            key = _merge_key(f"{path}{field}")
            _order(result, field, _ordered(value, key, f"{path}{name}"), key)
    return result


def _value(present: Any, patch: Any, path: str) -> Any:
    if isinstance(patch, dict):
        below = cast("JsonObject", present) if isinstance(present, dict) else {}
        return _merged(below, cast("JsonObject", patch), f"{path}.")
    if isinstance(patch, list):
        listed = cast("list[Any]", patch)
        before = cast("list[Any]", present) if isinstance(present, list) else []
        if _bare(path) in _MERGED_TEXTS:
            return [*before, *(item for item in listed if item not in before)]
        key = _merge_key(path)
        return _merged_list(before, listed, key, path) if key else [_plain(item) for item in listed]
    return patch


def _merged_list(present: list[Any], patch: list[Any], key: str, path: str) -> list[Any]:
    result = list(present)
    for index, item in enumerate(patch):
        if not isinstance(item, dict):
            raise InvalidInput("an object", _shown(item), f"patch.{path}[{index}]")
        entry = cast("JsonObject", item)
        if entry.get(_PATCH) == "replace" and key not in entry:
            # `- $patch: replace` stands for the whole list: the other items of the patch are all that remains
            return [_plain(other) for other in patch if other is not item]
        if entry.get(key) is None:
            raise InvalidInput(f"an item with its merge key {key}", _shown(entry), f"patch.{path}[{index}]")
        place = next((at for at, found in enumerate(result) if _key_of(found, key) == entry[key]), None)
        if entry.get(_PATCH) == "delete":
            if place is not None:
                del result[place]
        elif place is None:
            result.append(_merged({}, entry, f"{path}."))
        else:
            result[place] = _merged(cast("JsonObject", result[place]), entry, f"{path}.")
    return result


def _delete_from(result: JsonObject, field: str, values: list[Any]) -> None:
    present = result.get(field)
    if isinstance(present, list):
        result[field] = [item for item in cast("list[Any]", present) if item not in values]


def _order(result: JsonObject, field: str, wanted: list[Any], key: str) -> None:
    """Sort the items of a list into the order of a `$setElementOrder` directive, in place.

    Items that the directive does not name keep their places.

    Args:
        wanted: Items or keys in the order of the directive.
    """
    present = result.get(field)
    if not isinstance(present, list):
        return
    listed = cast("list[Any]", present)
    order = [_key_of(item, key) if key else item for item in wanted]

    def rank(item: Any) -> int:
        value = _key_of(item, key) if key else item
        return order.index(value) if value in order else -1

    named = iter(sorted((item for item in listed if rank(item) >= 0), key=rank))
    result[field] = [next(named) if rank(item) >= 0 else item for item in listed]


def _plain(value: Any) -> Any:
    """Return a value of the patch without its nulls and directives."""
    if isinstance(value, dict):
        return _merged({}, cast("JsonObject", value), " ")
    if isinstance(value, list):
        return [_plain(item) for item in cast("list[Any]", value)]
    return value


def _key_of(item: Any, key: str) -> Any:
    return cast("JsonObject", item).get(key) if isinstance(item, dict) else None


def _merge_key(path: str) -> str:
    return _MERGE_KEYS.get(_bare(path), "")


def _bare(path: str) -> str:
    """Return a path inside a pod, without the prefix of a pod template."""
    return path.removeprefix(_TEMPLATE)


def _listed(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidInput("a list", _shown(value), f"patch.{path}")
    return cast("list[Any]", value)


def _names(value: Any, path: str) -> frozenset[str]:
    listed = _listed(value, path)
    for index, item in enumerate(listed):
        if not isinstance(item, str):
            raise InvalidInput("the name of a field", _shown(item), f"patch.{path}[{index}]")
    return frozenset(listed)


def _plain_items(value: Any, path: str) -> list[Any]:
    listed = _listed(value, path)
    for index, item in enumerate(listed):
        if isinstance(item, dict | list):
            raise InvalidInput("a text, a number or a truth value", _shown(item), f"patch.{path}[{index}]")
    return listed


def _ordered(value: Any, key: str, path: str) -> list[Any]:
    listed = _listed(value, path)
    for index, item in enumerate(listed if key else ()):
        if _key_of(item, key) is None:
            raise InvalidInput(f"an item with its merge key {key}", _shown(item), f"patch.{path}[{index}]")
    return listed


def _shown(value: Any) -> object:
    """Return the part of a value that an error message may contain; values of an environment are hidden."""
    return sorted(cast("JsonObject", value)) if isinstance(value, dict) else type(value).__name__
