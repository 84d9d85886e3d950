"""Write the batch resources of a pod to an annotation, because the container runtime does not receive them.

Source:
    manager spec, 9.1
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
    """Write the batch resources of a pod's containers to the annotation `extended-resource-spec`, in place.

    No-op if the annotation is up to date.

    Returns:
        Whether the annotation changed.

    Raises:
        InvalidInput: A quantity or the present annotation is invalid.

    Source:
        manager spec, 9.1
    """
    try:
        fresh = refresh_extended_resource_spec(pod_from_json(pod))
    except codec.DecodeError as error:
        raise InvalidInput(f"a pod ({error})", None) from error
    if fresh is None:
        return False
    child(child(pod, "metadata"), "annotations")[keys.EXTENDED_RESOURCE_SPEC] = fresh
    return True
