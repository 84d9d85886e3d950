"""What `apply` makes of an object that exists: what changed between two manifests, on top of what is stored.

    stored + (new - last applied)

A field that the last manifest had and the new one has not is removed; one that both have alike stays as it is stored,
so that what admission and controllers made of it is not undone; what others have added stays. Maps merge, lists are
replaced, as for every custom resource. Nulls are values: those that mean "absent" were dropped by the schema.
"""

from collections.abc import Mapping
from typing import Any, cast

from koordcore.values import codec

from koord_manager.domain.admission.recording.recorded_object import LAST_APPLIED


def three_way(stored: Mapping[str, Any], last: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The object to store; no argument is changed."""
    result = {name: value for name, value in stored.items() if name in new or name not in last}
    for name, value in new.items():
        if name in stored and name in last and last[name] == value:
            continue
        if isinstance(value, dict):
            result[name] = three_way(_object(stored.get(name)), _object(last.get(name)), cast("dict[str, Any]", value))
        else:
            result[name] = value
    return result


def last_applied(annotations: Mapping[str, Any]) -> dict[str, Any]:
    """Our copy of the last manifest among the annotations of a stored object; the empty one when there is none."""
    try:
        return codec.decode(str(annotations.get(LAST_APPLIED) or "{}"), dict[str, Any])
    except codec.DecodeError:
        return {}


def _object(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
