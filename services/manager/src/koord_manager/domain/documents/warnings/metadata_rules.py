"""Rules for the values of the protocol's labels and annotations, and the effect of other values.

As the protocol requires, admission accepts any value, and the readers use a default without a message.
`metadata_warnings` reports such values.

Source:
    protocol spec, 2.1, 2.2, 4.1 to 4.6, 5
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeVar, cast

from koordcore.protocol import keys
from koordcore.protocol.amplification import parse_cpu_normalization_enabled
from koordcore.protocol.annotations import devices
from koordcore.protocol.annotations.cpu import CoreSchedPolicy, NodeCpuBindPolicy
from koordcore.protocol.annotations.devices import (
    ALLOCATE_BEST_EFFORT,
    ALLOCATE_RESTRICTED,
    PARTITION_HONOR,
    PARTITION_PREFER,
    parse_gpu_partition_spec,
)
from koordcore.protocol.annotations.gang import MATCH_POLICIES, MODE_NON_STRICT, MODE_STRICT
from koordcore.protocol.annotations.node import POLICY_RESERVED_CPUS_ONLY
from koordcore.protocol.annotations.pods import parse_eviction_cost
from koordcore.protocol.lenient_json import fold_keys, parse_json
from koordcore.protocol.priority import PriorityBand
from koordcore.protocol.qos import QosClass
from koordcore.values.duration import parse_duration
from koordcore.values.integers import parse_decimal, parse_literal
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import parse_quantity

T = TypeVar("T")


class MetadataRule(NamedTuple):
    check: Callable[[str], object]  # Function that raises InvalidInput for a value that is not valid
    # Sentence about the effect of an invalid value, for example that it is ignored; empty if that depends on the value.
    effect: str = ""


class Holder(NamedTuple):
    """The rules for one kind of object: label key -> rule, and annotation key -> rule."""

    labels: Mapping[str, MetadataRule]
    annotations: Mapping[str, MetadataRule]


def _one_of(allowed: Iterable[str], effect: str) -> MetadataRule:
    known = tuple(str(each) for each in allowed)

    def check(text: str) -> None:
        if text not in known:
            raise InvalidInput(f"one of {', '.join(each for each in known if each)}", text)

    return MetadataRule(check, effect)


def _switch(default: bool) -> MetadataRule:
    return _one_of(("true", "false"), f"it counts as {str(default).lower()}")


def _ratio(text: str) -> None:
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio < float("inf"):
        raise InvalidInput("a number of at least 0", text)


def _cost(text: str) -> None:
    parse_eviction_cost({keys.EVICTION_COST: text})


def _boolean(text: str) -> None:
    parse_cpu_normalization_enabled({keys.CPU_NORMALIZATION_ENABLED: text})


def _within(low: int, high: int) -> Callable[[str], None]:
    def check(text: str) -> None:
        if not low <= parse_decimal(text) <= high:
            raise InvalidInput(f"an integer within {low}..{high}", text)

    return check


def _json_object(**allowed: tuple[str, ...]) -> Callable[[str], None]:
    """Return a check for a JSON object in which some fields may have only certain texts."""

    def check(text: str) -> None:
        decoded = parse_json(text)
        if not isinstance(decoded, dict):
            raise InvalidInput("a JSON object", text)
        for name, value in fold_keys(cast("dict[str, object]", decoded), allowed).items():
            if value and value not in allowed[name]:
                raise InvalidInput(f"one of {', '.join(allowed[name])}", value, name)

    return check


def _json_list(*allowed: str) -> Callable[[str], None]:
    """Return a check for a JSON list of certain texts; without any, all texts are allowed."""

    def check(text: str) -> None:
        decoded = parse_json(text)
        if not isinstance(decoded, list):
            raise InvalidInput("a JSON list", text)
        for index, item in enumerate(cast("list[object]", decoded)):
            if not isinstance(item, str) or (allowed and item not in allowed):
                raise InvalidInput(f"one of {', '.join(allowed)}" if allowed else "text", item, f"[{index}]")

    return check


def _parsed(key: str, text: str, parse: Callable[[Mapping[str, str]], T]) -> T:
    try:
        return parse({key: text})
    except InvalidInput as error:
        raise InvalidInput(error.rule, error.value, error.path.removeprefix(f"[{key}]").lstrip(".")) from error


def _device_hints(text: str) -> None:
    for type_, hint in _parsed(keys.DEVICE_ALLOCATE_HINT, text, devices.parse_device_hints).items():
        for name, value, allowed in (
            ("allocateStrategy", hint.allocate_strategy, (devices.APPLY_FOR_ALL, devices.REQUESTS_AS_COUNT)),
            ("requiredTopologyScope", hint.required_scope, tuple(devices.SCOPE_LEVELS)),
            ("exclusivePolicy", hint.exclusive_policy, (devices.DEVICE_LEVEL, devices.PCIE_LEVEL)),
        ):
            if value and value not in allowed:
                raise InvalidInput(f"one of {', '.join(allowed)}", value, f"{type_}.{name}")


def _joint_allocation(text: str) -> None:
    joint = _parsed(keys.DEVICE_JOINT_ALLOCATE, text, devices.parse_joint_allocation)
    if joint is None or len(joint.types) < 2:
        raise InvalidInput("two device types or more", list(joint.types) if joint else [], "deviceTypes")
    if joint.required_scope not in ("", devices.SAME_PCIE):
        raise InvalidInput(devices.SAME_PCIE, joint.required_scope, "requiredScope")


def _partition_spec(text: str) -> None:
    spec = _parsed(keys.GPU_PARTITION_SPEC, text, parse_gpu_partition_spec)
    allowed = (ALLOCATE_BEST_EFFORT, ALLOCATE_RESTRICTED)
    if spec is not None and spec.allocate_policy not in allowed:
        raise InvalidInput(f"one of {', '.join(allowed)}", spec.allocate_policy, "allocatePolicy")


_TEXT: Final = MetadataRule(str)
"""Any text; the key is listed so that a wrong place is reported."""

_IGNORED: Final = "it is ignored"
_ZERO: Final = "it counts as 0"
_GANG_MODE: Final = _one_of((MODE_STRICT, MODE_NON_STRICT), f"it counts as {MODE_STRICT}")
_GANG_MATCH: Final = _one_of(MATCH_POLICIES, "the scheduler's default applies")
_GANG_GROUPS: Final = MetadataRule(_json_list(), "the gang stands alone")
_NETWORK_SPEC: Final = MetadataRule(_json_object(), _IGNORED)
_BIND_POLICIES: Final = ("Default", "FullPCPUs", "SpreadByPCPUs", "ConstrainedBurst")
_NUMA_POLICIES: Final = ("BestEffort", "Restricted", "SingleNUMANode")
_BURST_POLICIES: Final = ("none", "cpuBurstOnly", "cfsQuotaBurstOnly", "auto")
_EVICTORS: Final = (
    "BECPUEvict", "CPUEvict", "CPUAllocatableEvict", "BEMemoryEvict", "MemoryEvict", "MemoryAllocatableEvict",
)  # fmt: skip

POD: Final = Holder(
    labels={
        keys.QOS_CLASS: _one_of(QosClass, "the pod counts as having no QoS class of its own"),
        keys.PRIORITY_CLASS: _one_of(PriorityBand, "the pod has no priority class, whatever its number says"),
        keys.SUB_PRIORITY: MetadataRule(parse_literal, _ZERO),
        keys.QUOTA_NAME: _TEXT,
        keys.POD_GROUP: _TEXT,
        keys.SCHEDULER_NAME: _TEXT,
        keys.EVICTION_ENABLED: _switch(default=False),
        keys.CORE_SCHED_POLICY: _one_of(CoreSchedPolicy, "the default applies"),
        keys.GPU_ISOLATION_PROVIDER: _one_of(("HAMi-core",), "no node provides it"),
        keys.EVICT_POLICY: _one_of(("Eviction", "Delete", "SoftEviction"), "the descheduler's default applies"),
        keys.MUTATING_UPDATE: _switch(default=False),
        keys.SKIP_ENHANCED_VALIDATION: _switch(default=False),
        keys.IS_PRE_ALLOCATABLE: _switch(default=False),
        keys.PREEMPTION_POLICY: _one_of(("Never", "PreemptLowerPriority"), _IGNORED),
        keys.DISABLE_PREEMPTIBLE: _switch(default=False),
        keys.RESERVATION_IGNORED: _switch(default=False),
        keys.OPERATING_MODE: _one_of(("Runnable", "Reservation"), "it counts as Runnable"),
        keys.QUOTA_PREEMPTIBLE: _switch(default=True),
        keys.POD_GROUP_MIN_AVAILABLE: MetadataRule(parse_decimal, "the gang has no minimum, and its pods wait"),
    },
    annotations={
        keys.CPU_BURST: MetadataRule(_json_object(policy=_BURST_POLICIES)),
        keys.CPU_QOS: MetadataRule(_json_object(), _IGNORED),
        keys.MEMORY_QOS: MetadataRule(_json_object(policy=("auto", "default", "none"))),
        keys.BLKIO_QOS: MetadataRule(_json_object(), _IGNORED),
        keys.NETWORK_QOS: MetadataRule(_json_object(), _IGNORED),
        keys.EVICTION_POLICY: MetadataRule(_json_list(*_EVICTORS)),
        keys.EVICTION_PRIORITY: MetadataRule(parse_decimal, _ZERO),
        keys.OOM_SCORE_ADJ: MetadataRule(_within(-1000, 1000), _IGNORED),
        keys.OOM_SCORE_ADJ_SPEC: MetadataRule(_json_object(), _IGNORED),
        keys.RESCTRL: MetadataRule(_json_object(), _IGNORED),
        keys.RESOURCE_SPEC: MetadataRule(
            _json_object(
                requiredCPUBindPolicy=_BIND_POLICIES,
                preferredCPUBindPolicy=_BIND_POLICIES,
                preferredCPUExclusivePolicy=("None", "PCPULevel", "NUMANodeLevel"),
            )
        ),
        keys.NUMA_TOPOLOGY_SPEC: MetadataRule(
            _json_object(
                numaTopologyPolicy=_NUMA_POLICIES,
                singleNUMANodeExclusive=("Preferred", "Required"),
            )
        ),
        keys.DEVICE_ALLOCATE_HINT: MetadataRule(_device_hints),
        keys.DEVICE_JOINT_ALLOCATE: MetadataRule(_joint_allocation),
        keys.GPU_PARTITION_SPEC: MetadataRule(_partition_spec),
        keys.RESERVATION_AFFINITY: MetadataRule(_json_object()),
        keys.EXACT_MATCH_RESERVATION: MetadataRule(_json_object(), _IGNORED),
        keys.EVICTION_COST: MetadataRule(_cost, _ZERO),
        keys.LOAD_ESTIMATED_SCALING_FACTORS: MetadataRule(_json_object(), _IGNORED),
        keys.LOAD_ESTIMATED_SECONDS_AFTER_POD_SCHEDULED: MetadataRule(parse_decimal, _IGNORED),
        keys.LOAD_ESTIMATED_SECONDS_AFTER_INITIALIZED: MetadataRule(parse_decimal, _IGNORED),
        keys.GANG_NAME: _TEXT,
        keys.GANG_MIN_AVAILABLE: MetadataRule(parse_decimal, "the gang has no minimum, and its pods wait"),
        keys.GANG_TOTAL_NUMBER: MetadataRule(parse_decimal, "min-available is taken"),
        keys.GANG_MODE: _GANG_MODE,
        keys.GANG_WAITING_TIME: MetadataRule(parse_duration, "the scheduler's default applies"),
        keys.GANG_GROUPS: _GANG_GROUPS,
        keys.GANG_MATCH_POLICY: _GANG_MATCH,
        keys.GANG_MATCH_POLICY_ALIAS: _GANG_MATCH,
        keys.GANG_NETWORK_TOPOLOGY_INDEX: MetadataRule(parse_decimal, "the pod comes last among its gang"),
        keys.GANG_NETWORK_TOPOLOGY_SPEC: _NETWORK_SPEC,
    },
)
"""Pods, and what becomes a pod's metadata: templates, colocation profiles."""

_RATIO: Final = MetadataRule(_ratio, "the configuration's value applies")
_PARTITIONS: Final = _one_of((PARTITION_HONOR, PARTITION_PREFER), f"it counts as {PARTITION_PREFER}")

NODE: Final = Holder(
    labels={
        keys.CPU_BIND_POLICY: _one_of(NodeCpuBindPolicy, "it counts as None"),
        keys.NUMA_ALLOCATE_STRATEGY: _one_of(("MostAllocated", "LeastAllocated", "DistributeEvenly"), _IGNORED),
        keys.NUMA_TOPOLOGY_POLICY: _one_of(_NUMA_POLICIES, _IGNORED),
        keys.ENABLE_NUMA_RESERVATION: _switch(default=False),
        keys.CPU_RECLAIM_RATIO: _RATIO,
        keys.MEMORY_RECLAIM_RATIO: _RATIO,
        keys.MID_STATIC_CPU_RESERVED_RATIO: _RATIO,
        keys.MID_STATIC_MEMORY_RESERVED_RATIO: _RATIO,
        keys.CPU_NORMALIZATION_ENABLED: MetadataRule(_boolean, "the node's ratio is not computed"),
        keys.GPU_PARTITION_POLICY: _PARTITIONS,
    },
    annotations={
        keys.NODE_RESERVATION: MetadataRule(_json_object(applyPolicy=("Default", POLICY_RESERVED_CPUS_ONLY))),
        keys.SYSTEM_QOS_RESOURCE: MetadataRule(_json_object(), "the node's topology is not reported"),
        keys.NETWORK_BANDWIDTH: MetadataRule(parse_quantity, "the agent's defaults apply"),
        keys.COLOCATION_STRATEGY: MetadataRule(_json_object(), "the configuration's values apply"),
        keys.THIRD_PARTY_ALLOCATIONS: MetadataRule(_json_object(), _IGNORED),
        keys.USAGE_THRESHOLDS: MetadataRule(_json_object(), _IGNORED),
    },
)

HOLDERS: Final[Mapping[str, Holder]] = {
    "Pod": POD,
    "Node": NODE,
    "Device": Holder(
        labels={keys.GPU_PARTITION_POLICY: _PARTITIONS, keys.SECONDARY_DEVICE_WELL_PLANNED: _switch(default=False)},
        annotations={},
    ),
    "PodGroup": Holder(
        labels={},
        annotations={
            keys.GANG_TOTAL_NUMBER: MetadataRule(parse_decimal, "spec.minMember is taken"),
            keys.GANG_MODE: _GANG_MODE,
            keys.GANG_GROUPS: _GANG_GROUPS,
            keys.GANG_MATCH_POLICY: _GANG_MATCH,
            keys.GANG_NETWORK_TOPOLOGY_SPEC: _NETWORK_SPEC,
        },
    ),
    "Reservation": Holder(
        labels={
            keys.RESERVATION_ORDER: MetadataRule(partial(parse_decimal, bits=64), _ZERO),
            keys.PRE_ALLOCATION_REQUIRED: _switch(default=False),
        },
        annotations={keys.RESERVATION_RESTRICTED_OPTIONS: MetadataRule(_json_object(), _IGNORED)},
    ),
    "ElasticQuota": Holder(
        labels={
            keys.QUOTA_PARENT: _TEXT,
            keys.QUOTA_TREE_ID: _TEXT,
            keys.QUOTA_IS_PARENT: _switch(default=False),
            keys.QUOTA_ALLOW_LENT_RESOURCE: _switch(default=True),
            keys.QUOTA_IS_ROOT: _switch(default=False),
            keys.QUOTA_IGNORE_DEFAULT_TREE: _switch(default=False),
            keys.QUOTA_ALLOW_FORCE_UPDATE: _switch(default=False),
        },
        annotations={},
    ),
    "PodMigrationJob": Holder(labels={keys.EVICT_POLICY: POD.labels[keys.EVICT_POLICY]}, annotations={}),
    "ClusterColocationProfile": Holder(labels={keys.CONTROLLER_MANAGED: _switch(default=False)}, annotations={}),
    "ConfigMap": Holder(
        labels={keys.CONFIG_MAP_TYPE: _one_of((keys.CONFIG_MAP_TYPE_SLO,), "the webhook does not look at it")},
        annotations={},
    ),
}
"""By kind of object, its own metadata."""
