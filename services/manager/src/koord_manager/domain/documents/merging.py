"""Merge a manifest into a stored object, with the last applied manifest as the base.

The result is the stored object plus the difference between the new and the last manifest. A field that only the last
manifest has is removed. A field that is equal in both manifests stays as stored, so changes of admission and
controllers stay. Fields of other writers stay.

Maps are merged, lists are replaced, as for custom resources. Null is a value, because the schema has dropped those
nulls that mean "absent".

Source:
    RFC 7386, 2 (JSON merge patch)
"""

from collections.abc import Mapping
from typing import Any, cast

from koordcore.values import codec
from koordcore.values.text_limits import decode_within_limits

from koord_manager.domain.admission.recorded_object import LAST_APPLIED


def three_way(stored: Mapping[str, Any], last: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return `stored` changed by the difference between `last` (empty for none) and `new`. No argument is changed."""
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
    """Return the manifest that `koord apply` applied last, from an annotation; an empty mapping if there is none."""
    try:
        return decode_within_limits(str(annotations.get(LAST_APPLIED) or "{}"), dict[str, Any])
    except codec.DecodeError:
        return {}


def _object(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def merged(target: object, patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with a merge patch applied: null removes a member. No argument is changed.

    A target of another type counts as an empty object.
    """
    result = dict(cast("Mapping[str, Any]", target)) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            result[name] = merged(result.get(name), cast("Mapping[str, Any]", value))
        else:
            result[name] = value
    return result
