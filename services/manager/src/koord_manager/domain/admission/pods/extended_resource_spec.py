"""The annotation that tells the node's runtime hook the batch resources which the CRI drops.

source    manager spec, 9.1
"""

from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.objects import pod_from_json
from koordcore.protocol.resource_names import refresh_extended_resource_spec
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.json_object import child
from koord_manager.domain.admission.request import JsonObject

STEP: Final = "ExtendedResourceSpec"


def record_extended_resources(pod: JsonObject) -> bool:
    """Writes the annotation in place when it is missing or stale; whether it did.

    raises    InvalidInput for a malformed quantity, and for an annotation that cannot be read
    source    manager spec, 9.1
    """
    try:
        fresh = refresh_extended_resource_spec(pod_from_json(pod))
    except codec.DecodeError as error:
        raise InvalidInput(f"a pod ({error})", None) from error
    if fresh is None:
        return False
    child(child(pod, "metadata"), "annotations")[keys.EXTENDED_RESOURCE_SPEC] = fresh
    return True
