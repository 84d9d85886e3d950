"""Normalize GPU requests: replace `gpu` by core and memory ratio, and add the number of shared cards.

Source:
    manager spec, 9.3
"""

from typing import Final

from koordcore.protocol.resource_names import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import quantity_from_json

from koord_manager.domain.admission.json_object import child, items, seen
from koord_manager.domain.admission.request import JsonObject

STEP: Final = "DeviceResourceSpec"
_GPU_NAMES: Final = frozenset((GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED))
_WHOLE_CARD: Final = 100


def normalize_devices(pod: JsonObject) -> bool:
    """Replace GPU requests of all containers by core, memory ratio and number of cards, in place.

    Return whether anything changed. `normalize_gpu` has the rules.

    Raises:
        InvalidInput: A quantity is not valid.
    """
    changed = False
    for index, container in enumerate(items(seen(pod, "spec"), "containers")):
        try:
            if not _GPU_NAMES.isdisjoint(seen(container, "resources", "requests")):
                changed |= normalize_gpu(child(container, "resources"))
        except InvalidInput as error:
            raise error.at(f"spec.containers[{index}]") from error
    return changed


def normalize_gpu(resources: JsonObject) -> bool:
    """Replace the GPU requests of one container by core, memory ratio and number of cards, in place.

    Return whether anything changed. `resources` is the field `resources` of the container.

    Limits get the same values. `gpu.shared` is the number of cards. If the memory ratio (otherwise the core) is a
    multiple of 100 above 100, it is the ratio divided by 100; otherwise it is 1.

    Raises:
        InvalidInput: A malformed quantity.

    Source:
        manager spec, 9.3; vectors manager/device_resource_spec
    """
    requests = seen(resources, "requests")
    if _GPU_NAMES.isdisjoint(requests):
        return False
    wanted = (requests, child(resources, "limits"))
    changed = False
    if GPU in requests:
        amount = requests[GPU]
        for listed in wanted:
            listed.pop(GPU, None)
            listed[GPU_CORE] = amount
            listed[GPU_MEMORY_RATIO] = amount
        changed = True
    if GPU_SHARED not in requests:
        shared = str(_cards(requests))
        for listed in wanted:
            listed[GPU_SHARED] = shared
        changed = True
    return changed


def _cards(requests: JsonObject) -> int:
    percent = quantity_from_json(requests.get(GPU_MEMORY_RATIO, requests.get(GPU_CORE))).value()
    return percent // _WHOLE_CARD if percent > _WHOLE_CARD and percent % _WHOLE_CARD == 0 else 1
