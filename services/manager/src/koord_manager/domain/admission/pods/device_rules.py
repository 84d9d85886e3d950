"""Check the devices that containers request.

Source:
    manager spec, 10.5
"""

from typing import Final

from koordcore.protocol import resource_names as names
from koordcore.protocol.objects import Pod
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import parse_resources

from koord_manager.domain.admission.request import Violation

_SENTENCES: Final = {
    "gpu-and-share": f"{names.GPU} and {names.GPU_SHARED} cannot be requested together",
    "gpu-zero": f"the requested {names.GPU} must be greater than zero",
    "gpu-not-multiple-of-100": f"the requested {names.GPU} must be a percentage of one card or a multiple of 100",
    "share-zero": f"the requested {names.GPU_SHARED} must be greater than zero",
    "share-memory-missing": f"{names.GPU_SHARED} needs {names.GPU_MEMORY} or {names.GPU_MEMORY_RATIO}",
    "share-memory-twice": f"{names.GPU_MEMORY} and {names.GPU_MEMORY_RATIO} cannot be requested together",
    "share-core-not-multiple": f"the requested {names.GPU_CORE} must be a multiple of {names.GPU_SHARED}",
    "share-ratio-not-multiple": f"the requested {names.GPU_MEMORY_RATIO} must be a multiple of {names.GPU_SHARED}",
}


def check_devices(pod: Pod) -> list[Violation]:
    """Return all violations in the device requests of a pod, in the order of the rules.

    Raises:
        InvalidInput: A quantity is invalid.

    Source:
        manager spec, 10.5; vectors manager/pod_validate
    """
    found: list[Violation] = []
    for index, container in enumerate(pod.spec.containers):
        field = f"spec.containers[{index}].resources.requests"
        try:
            amounts = {name: held.value() for name, held in parse_resources(container.resources.requests).items()}
        except InvalidInput as error:
            raise error.at(field) from error
        found += [
            Violation(rule=rule, field=field, message=f"{field}: Invalid value: {_SENTENCES[rule]}")
            for rule in _broken(amounts)
        ]
    order = list(_SENTENCES)
    return sorted(found, key=lambda violation: order.index(violation.rule))


def _broken(amounts: dict[str, int]) -> list[str]:
    if names.GPU in amounts and names.GPU_SHARED in amounts:
        return ["gpu-and-share"]
    rules: list[str] = []
    if names.GPU in amounts:
        gpu = amounts[names.GPU]
        if gpu == 0:
            rules.append("gpu-zero")
        if gpu > 100 and gpu % 100:
            rules.append("gpu-not-multiple-of-100")
    if names.GPU_SHARED in amounts:
        rules += _broken_share(amounts)
    return rules


def _broken_share(amounts: dict[str, int]) -> list[str]:
    shared = amounts[names.GPU_SHARED]
    rules = ["share-zero"] if shared == 0 else []
    if amounts.get(names.HUAWEI_NPU_CORE):
        return rules
    memory, ratio = amounts.get(names.GPU_MEMORY, 0), amounts.get(names.GPU_MEMORY_RATIO, 0)
    if not memory and not ratio:
        rules.append("share-memory-missing")
    if memory and ratio:
        rules.append("share-memory-twice")
    if shared:
        if amounts.get(names.GPU_CORE, 0) % shared:
            rules.append("share-core-not-multiple")
        if ratio % shared:
            rules.append("share-ratio-not-multiple")
    return rules
