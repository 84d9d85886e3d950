"""Device requests of a pod: the request forms, in canonical amounts per device type.

Source: scheduler-fine-grained spec, 2.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from koordcore.protocol.resource_names import (
    AMD_GPU,
    DCU_GPU,
    DEPRECATED_DEVICE,
    FPGA,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    HUAWEI_NPU_CORE,
    HUAWEI_NPU_CPU,
    HUAWEI_NPU_DVPP,
    NVIDIA_GPU,
    RDMA,
)
from koordcore.values.invalid import InvalidInput

GPU_TYPE: Final = "gpu"
RDMA_TYPE: Final = "rdma"
FPGA_TYPE: Final = "fpga"
WHOLE: Final = 100  # Percent of a whole device

# Default namespace and name of the ConfigMap with the templates of shared GPU resources.
GPU_TEMPLATES: Final = ("koordinator-system", "gpu-shared-resource-templates")
WHOLE_CARDS: Final = frozenset({NVIDIA_GPU, AMD_GPU, DCU_GPU})  # Names of vendors' device plugins: whole cards
_PERCENTAGE_FORMS: Final = frozenset(
    {
        frozenset({GPU_MEMORY_RATIO}),
        frozenset({GPU_CORE, GPU_MEMORY_RATIO}),
        frozenset({GPU_MEMORY}),
        frozenset({GPU_CORE, GPU_MEMORY}),
        frozenset({HUAWEI_NPU_CORE, GPU_MEMORY_RATIO}),
    }
)
_SHARED_FORMS: Final = frozenset(
    {
        frozenset({GPU_SHARED, GPU_MEMORY}),
        frozenset({GPU_SHARED, GPU_MEMORY_RATIO}),
        frozenset({GPU_SHARED, GPU_CORE, GPU_MEMORY}),
        frozenset({GPU_SHARED, GPU_CORE, GPU_MEMORY_RATIO}),
    }
)
_SLICE: Final = frozenset({GPU_SHARED, HUAWEI_NPU_CORE, HUAWEI_NPU_CPU, GPU_MEMORY})
_SLICE_FORMS: Final = frozenset({_SLICE, _SLICE | {HUAWEI_NPU_DVPP}})
# Resource names that make a GPU request.
GPU_NAMES: Final = (
    *sorted(WHOLE_CARDS),
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    HUAWEI_NPU_CORE,
    HUAWEI_NPU_CPU,
    HUAWEI_NPU_DVPP,
)
# Resource names that make a device request.
DEVICE_NAMES: Final = frozenset({*GPU_NAMES, RDMA, FPGA, *DEPRECATED_DEVICE})
_NAME_OF_TYPE: Final[Mapping[str, str]] = {RDMA_TYPE: RDMA, FPGA_TYPE: FPGA}

# Larger requests in bytes are capped, so that their percentage is a float. No card is as large.
_MOST_MEMORY: Final = 1 << 60
_INVALID_COMBINATION: Final = "invalid resource device requests"
_INVALID_UNIT: Final = "invalid resource unit"

Amounts = dict[str, int]


@dataclass(frozen=True, slots=True)
class TypeRequest:
    """Amounts that a pod requests of one device type (GPU, RDMA or FPGA)."""

    total: Mapping[str, int]  # Resource name -> amount over all devices
    count: int  # Number of devices. For RDMA and FPGA, the annotation `device-allocate-hint` may change it.
    per_device: Mapping[str, int]  # Resource name -> amount per device
    is_shared: bool  # Whether the pod takes a part of a GPU, so that other pods may use the rest


def device_requests(requests: Mapping[str, int]) -> dict[str, TypeRequest]:
    """Return device type -> what a pod requests of this type; empty if it requests no device. `requests`: resource name
    -> requested amount. Resources that are not devices are ignored.

    Raises:
        InvalidInput: The resources of one type cannot be combined, or an amount is not valid for its unit.
    """
    named = {DEPRECATED_DEVICE.get(name, name): requests[name] for name in requests if name in DEPRECATED_DEVICE}
    named |= {name: requests[name] for name in requests if name in DEVICE_NAMES and name not in DEPRECATED_DEVICE}
    for name, amount in named.items():
        if amount < 0:
            raise InvalidInput(f"0 or more ({_INVALID_UNIT})", amount, name)
    found: dict[str, TypeRequest] = {}
    gpu = {name: named[name] for name in GPU_NAMES if named.get(name, 0) > 0}
    if gpu:
        found[GPU_TYPE] = _per_card(_canonical_gpu(gpu))
    for type_, name in _NAME_OF_TYPE.items():
        amount = named.get(name, 0)
        if amount > 0:
            _check_percent(name, amount)
            count = amount // WHOLE if amount > WHOLE else 1
            found[type_] = TypeRequest({name: amount}, count, {name: amount // count}, is_shared=False)
    return found


def _canonical_gpu(gpu: Amounts) -> Amounts:
    names = frozenset(gpu)
    if len(names) == 1 and names <= WHOLE_CARDS:
        (cards,) = gpu.values()
        return {GPU_CORE: WHOLE * cards, GPU_MEMORY_RATIO: WHOLE * cards}
    if names == frozenset({GPU}):
        _check_percent(GPU, gpu[GPU])
        return {GPU_CORE: gpu[GPU], GPU_MEMORY_RATIO: gpu[GPU]}
    if names in _PERCENTAGE_FORMS:
        for name in (GPU_CORE, GPU_MEMORY_RATIO):
            _check_percent(name, gpu.get(name, 0))
        return gpu
    if names in _SHARED_FORMS:
        cards = gpu[GPU_SHARED]
        for name in (GPU_CORE, GPU_MEMORY_RATIO):
            amount = gpu.get(name, 0)
            if amount % cards or amount // cards > WHOLE:
                rule = f"a multiple of {GPU_SHARED}, at most {WHOLE} for each card ({_INVALID_COMBINATION})"
                raise InvalidInput(rule, amount, name)
        return gpu
    if names in _SLICE_FORMS:
        if gpu[GPU_SHARED] > 1:
            raise InvalidInput(f"1 with a slice of an NPU ({_INVALID_COMBINATION})", gpu[GPU_SHARED], GPU_SHARED)
        if gpu.get(HUAWEI_NPU_DVPP, 0) > WHOLE:
            rule = f"at most {WHOLE} ({_INVALID_COMBINATION})"
            raise InvalidInput(rule, gpu[HUAWEI_NPU_DVPP], HUAWEI_NPU_DVPP)
        return gpu
    raise InvalidInput(f"one of the forms of a GPU request ({_INVALID_COMBINATION})", sorted(names), "requests")


def _check_percent(name: str, amount: int) -> None:
    if amount > WHOLE and amount % WHOLE:
        raise InvalidInput(f"at most {WHOLE}, or a multiple of {WHOLE} ({_INVALID_UNIT})", amount, name)


def _per_card(total: Amounts) -> TypeRequest:
    ratio = total.get(GPU_MEMORY_RATIO, 0)
    count = total.get(GPU_SHARED, 0)
    if not count:
        count = ratio // WHOLE if ratio > WHOLE and ratio % WHOLE == 0 else 1
    per_card = {name: amount // count for name, amount in total.items() if name != GPU_SHARED}
    is_shared = per_card[GPU_MEMORY_RATIO] < WHOLE if ratio else GPU_MEMORY in per_card
    return TypeRequest(total, count, per_card, is_shared)


def with_both_memory_units(per_card: Mapping[str, int], card_memory: int) -> Mapping[str, int]:
    """Return the amounts requested of one GPU, with its memory both in bytes and in percent. `per_card`: amounts for
    one GPU, with the memory in one of the two units. With both or none, it is returned unchanged. `card_memory`: Memory
    of the GPU in bytes. If it is 0, `per_card` is returned unchanged.
    """
    ratio, memory = per_card.get(GPU_MEMORY_RATIO), per_card.get(GPU_MEMORY)
    if card_memory <= 0 or (ratio is None) == (memory is None):
        return per_card
    if memory is None:
        assert ratio is not None, "exactly one of the two is None"
        return {**per_card, GPU_MEMORY: ratio * card_memory // WHOLE}
    return {**per_card, GPU_MEMORY_RATIO: int(min(memory, _MOST_MEMORY) / card_memory * WHOLE)}
