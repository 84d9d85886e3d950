"""Apply a JSON merge patch.

Source:
    RFC 7386, 2
"""

from collections.abc import Mapping
from typing import Any, cast


def merged(target: object, patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with a merge patch applied. No argument is changed.

    Args:
        target: The object. A value of another type counts as an empty object.
        patch: The patch. Null removes a member.
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
