"""What `apply` makes of an object that exists: the fields of the new manifest over the stored ones.

    stored + (new - last applied)

A field that the last manifest had and the new one has not is removed; what others have written stays. Maps merge, lists
are replaced, as for every custom resource.

source    https://kubernetes.io/docs/tasks/manage-kubernetes-objects/declarative-config/ (merge patch calculation)
"""

from collections.abc import Mapping
from typing import Any, cast


def three_way(stored: Mapping[str, Any], last: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The object to store; no argument is changed."""
    result = {name: value for name, value in stored.items() if name in new or name not in last}
    for name, value in new.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = three_way(_object(stored.get(name)), _object(last.get(name)), cast("dict[str, Any]", value))
        else:
            result[name] = value
    return result


def _object(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
