"""What admission changed, as RFC 6902.

source    manager spec, 7.1
"""

from typing import Any

from jsonpatch import JsonPatch  # type: ignore[import-untyped]
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.request import JsonObject


def json_patch(before: JsonObject, after: JsonObject) -> list[dict[str, Any]]:
    """The operations that turn one object into the other; none when they are equal.

    raises    InvalidInput for objects nested deeper than can be compared
    """
    if before is after:
        return []
    try:
        return JsonPatch.from_diff(before, after).patch
    except RecursionError as error:
        raise InvalidInput("an object that is not nested too deeply", "deeper") from error
