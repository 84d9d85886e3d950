"""Memory protection and reclaim of classes, pods and containers: values of the memory.* files.

`MemoryQosStrategy` proposes them when pods or settings changed, and renews them every 30 s.

Source: agent spec, 14. Vectors: cgroup_reconcile.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
from koordcore.protocol import keys
from koordcore.protocol.config.fields import JsonValue
from koordcore.protocol.config.node_slo import AGENT_QOS_DEFAULTS, QOS_OFF
from koordcore.protocol.config.node_strategies import MemoryQos, QosStrategy
from koordcore.protocol.config.parse import parse_object
from koordcore.protocol.lenient_json import convert, parse_json
from koordcore.protocol.pod_resources import MEMORY
from koordcore.protocol.qos import KubeQos, QosClass
from koordcore.protocol.resource_names import BATCH_MEMORY
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.gate_names import CGROUP_RECONCILE
from koord_agent.domain.kernel.cgroup_files import INT64_MAX
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentContainer, AgentPod
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.strategies.strategy import RESOURCE_QOS, CycleState, Needs, Proposal, Readings, isolating

PLUGIN = "CgroupReconcile"
UNLIMITED = -1
Values = dict[str, int]
"""File name -> value. INT64_MAX stands for `max`. An absent file is not written."""
CLASS_OF_QOS: Mapping[str, str] = {
    QosClass.LSE: "lsrClass",
    QosClass.LSR: "lsrClass",
    QosClass.LS: "lsClass",
    QosClass.BE: "beClass",
    QosClass.SYSTEM: "systemClass",
}
CLASS_OF_KUBE_QOS: Mapping[KubeQos, str] = {
    KubeQos.GUARANTEED: "lsrClass",
    KubeQos.BURSTABLE: "lsClass",
    KubeQos.BEST_EFFORT: "beClass",
}
STATIC_FILES = (
    ("memory.wmark_ratio", "wmark_ratio"),
    ("memory.wmark_scale_factor", "wmark_scale_permill"),
    ("memory.wmark_min_adj", "wmark_min_adj"),
    ("memory.priority", "priority"),
    ("memory.use_priority_oom", "priority_enable"),
    ("memory.oom.group", "oom_kill_group"),
)
CLASS_FILES = STATIC_FILES[3:]
PROTECTIONS = ("memory.min", "memory.low")
RENEW_AFTER_MS = 30_000
AUDIT_REASON = "UpdateMemory"


NONE_VALUES = convert(QOS_OFF["memoryQOS"], MemoryQos)
"""Values of the policy `none` (agent spec, 4.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMemory:
    """Values of memory.* files: for the directory of a pod, and for its containers by name."""

    pod: Values
    containers: Mapping[str, Values]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryValues:
    """Values of memory.* files: Kubernetes QoS class -> values of its directory, and UID of a pod -> its values."""

    classes: Mapping[KubeQos, Values] = field(default_factory=dict[KubeQos, Values])
    pods: Mapping[str, PodMemory] = field(default_factory=dict[str, PodMemory])


def class_settings(section: Mapping[str, Any]) -> dict[str, MemoryQos]:
    """The classes `lsrClass`, `lsClass`, `beClass` and `systemClass` of a `resourceQOSStrategy` (JSON) of a NodeSLO.

    The settings of an absent class are all None.

    Raises:
        InvalidInput: A field has a wrong type.
    """
    strategy = convert(section, QosStrategy)
    return {
        "lsrClass": strategy.lsr_class.memory_qos,
        "lsClass": strategy.ls_class.memory_qos,
        "beClass": strategy.be_class.memory_qos,
        "systemClass": strategy.system_class.memory_qos,
    }


DEFAULTS = class_settings(cast("Mapping[str, Any]", AGENT_QOS_DEFAULTS))
"""Recommended values of each class for the policy `auto`."""


def settings_of_pod(pod: AgentPod, classes: Mapping[str, MemoryQos]) -> MemoryQos:
    """Return the memory settings of a pod, from its QoS class and its annotation `koordinator.sh/memoryQOS`.

    The fields of the annotation override those of the class (`lsrClass` also for LSE). With its policy `auto` they
    override the recommended values instead. With its policy `none` the result is `NONE_VALUES`, whatever else it
    contains. An invalid annotation counts as absent.
    """
    name = CLASS_OF_QOS[QosClass(pod.qos)]
    of_class = classes.get(name, MemoryQos())
    text = pod.annotations.get(keys.MEMORY_QOS)
    if not text:
        return of_class
    try:
        decoded = parse_json(text)
        if not isinstance(decoded, dict):
            return of_class
        written = cast("dict[str, JsonValue]", decoded)
        own = convert(parse_object(MemoryQos, written, keys.MEMORY_QOS), MemoryQos)
    except InvalidInput:
        return of_class
    policy = next((value for key, value in written.items() if key.lower() == "policy"), None)
    if policy == "none":
        return NONE_VALUES
    below = DEFAULTS[name] if policy == "auto" else of_class
    given = {f: v for f in own.__struct_fields__ if (v := getattr(own, f)) is not None}
    return msgspec.structs.replace(below, **given)


def memory_values(
    classes: Mapping[str, MemoryQos], pods: Iterable[AgentPod], *, allocatable_bytes: int, page_size: int
) -> MemoryValues:
    """Return the values of all memory.* files of the node's QoS classes, pods and containers.

    memory.min and memory.low of a class are the sums over its pods. The directory of the guaranteed class contains all
    pods, so its sums count every pod. Only Pending and Running pods count. `allocatable_bytes` of the node counts as
    the limit of containers without a limit.
    """
    of_pods: dict[str, PodMemory] = {}
    sums: dict[KubeQos, Values] = {}
    for pod in pods:
        of_pod = pod_memory(pod, classes, allocatable_bytes, page_size)
        if of_pod is None:
            continue
        of_pods[pod.uid], settings = of_pod, settings_of_pod(pod, classes)
        for name, percent in zip(PROTECTIONS, (settings.min_limit_percent, settings.low_limit_percent), strict=True):
            if percent is not None:
                share = _requested(pod) * percent // 100
                for kube_qos in {pod.kube_qos, KubeQos.GUARANTEED}:
                    total = sums.setdefault(kube_qos, {})
                    total[name] = total.get(name, 0) + share
    of_classes = {
        kube_qos: {**_static(classes.get(name, MemoryQos()), CLASS_FILES), **sums.get(kube_qos, {})}
        for kube_qos, name in CLASS_OF_KUBE_QOS.items()
    }
    return MemoryValues(classes=of_classes, pods=of_pods)


def pod_memory(
    pod: AgentPod, classes: Mapping[str, MemoryQos], allocatable_bytes: int, page_size: int
) -> PodMemory | None:
    """None if the pod is neither Pending nor Running. The arguments are those of `memory_values`."""
    if not pod.is_active:
        return None
    return _pod_values(pod, settings_of_pod(pod, classes), allocatable_bytes, page_size)


def _resource(pod: AgentPod) -> str:
    return BATCH_MEMORY if pod.qos_label == QosClass.BE else MEMORY


def _containers(pod: AgentPod) -> tuple[AgentContainer, ...]:
    """Those that run as long as the pod."""
    return tuple(container for container in pod.containers if container.is_sidecar or not container.is_init)


def _requested(pod: AgentPod) -> int:
    return pod.requests_in_force.get(_resource(pod), 0)


def _pod_values(pod: AgentPod, settings: MemoryQos, allocatable_bytes: int, page_size: int) -> PodMemory:
    resource = _resource(pod)
    containers: dict[str, Values] = {}
    for container in _containers(pod):
        request, limit = container.requests.get(resource, 0), container.limits.get(resource)
        values = {**_static(settings, STATIC_FILES), **_protection(settings, request)}
        high = _high(settings, request, allocatable_bytes if limit is None else limit, page_size)
        if high is not None:
            values["memory.high"] = max(high, values.get("memory.min", 0)) if high > 0 else high
        containers[container.name] = values
    of_pod = {**_static(settings, STATIC_FILES), **_protection(settings, _requested(pod)), **_page_cache(pod, settings)}
    return PodMemory(pod=of_pod, containers=containers)


def _static(settings: MemoryQos, files: Iterable[tuple[str, str]]) -> Values:
    return {name: value for name, attribute in files if (value := getattr(settings, attribute)) is not None}


def _protection(settings: MemoryQos, request: int) -> Values:
    values: Values = {}
    if settings.min_limit_percent is not None:
        values["memory.min"] = request * settings.min_limit_percent // 100
    if settings.low_limit_percent is not None:
        low = request * settings.low_limit_percent // 100
        values["memory.low"] = max(low, values.get("memory.min", 0)) if low > 0 else low
    return values


def _high(settings: MemoryQos, request: int, limit: int, page_size: int) -> int | None:
    """Return memory.high of a container: request + (limit - request) * percent / 100, floored to a page. 0 % means max.

    None if the file must not be changed: the percentage is absent or outside 0..100.
    """
    percent = settings.throttling_percent
    if percent is None or not 0 <= percent <= 100:
        return None
    if percent == 0:
        return INT64_MAX
    return (request + (limit - request) * percent // 100) // page_size * page_size


def _page_cache(pod: AgentPod, settings: MemoryQos) -> Values:
    """A size, at most the pod's limit, or a percentage of it."""
    limit = _page_cache_base(pod)
    size = settings.page_cache_limit_size
    if size is not None:
        size = min(size, limit) if limit > 0 else size
    elif settings.page_cache_limit_percent is not None and limit > 0:
        size = limit * settings.page_cache_limit_percent // 100
    values: Values = {}
    if size is not None and size >= 0:
        values["memory.pagecache_limit.size"] = size
        values["memory.pagecache_limit.enable"] = int(size > 0)
        if size > 0:
            values["memory.pagecache_limit.sync"] = int(settings.page_cache_reclaim_sync or False)
    if settings.page_cache_enable is not None:
        values["memory.pagecache_limit.enable"] = int(settings.page_cache_enable)
    return values


def _page_cache_base(pod: AgentPod) -> int:
    """Memory limit of a pod in bytes; -1 if the pod is unlimited.

    A pod with label BE is unlimited unless all its containers have a limit.
    """
    resource = _resource(pod)
    is_limited = resource != BATCH_MEMORY or all(resource in container.limits for container in _containers(pod))
    return pod.limits.get(resource, UNLIMITED) if is_limited else UNLIMITED


@dataclass(slots=True)
class MemoryQosStrategy:
    name = PLUGIN
    needs = Needs(gates=(CGROUP_RECONCILE,), section=RESOURCE_QOS)
    page_size: int = 4096  # Size of a memory page of this machine in bytes
    _pods: tuple[AgentPod, ...] = ()
    _section: Mapping[str, Any] | None = None
    _at_ms: int = 0
    # Files of classes that got a protection above 0.
    _protecting: set[CgroupFile] = field(default_factory=set[CgroupFile])

    def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
        """No plans while the inputs are unchanged and less than 30 s have passed since the last plans."""
        if (
            look.has_same_pods(self._pods)
            and self._section is policy
            and 0 <= look.now_ms - self._at_ms < RENEW_AFTER_MS
        ):
            return Proposal()
        self._pods, self._section, self._at_ms = look.pods, policy, look.now_ms
        classes = class_settings(policy)
        values = memory_values(
            classes,
            look.pods,
            allocatable_bytes=look.allocatable.get(MEMORY, 0),
            page_size=self.page_size,
        )
        wanted: list[tuple[CgroupFile, int]] = []

        def add(directory: str, files: Values) -> None:
            wanted.extend((CgroupFile(directory, name), value) for name, value in files.items())

        for kube_qos, files in values.classes.items():
            directory = look.layout.qos_directory(kube_qos)
            add(directory, files)
            if look.has_all_pods:
                settings = classes.get(CLASS_OF_KUBE_QOS[kube_qos], MemoryQos())
                wanted.extend((file, 0) for file in self._left_behind(directory, files, settings, state.readings))
        left = {file for file, value in wanted if value == 0} & self._protecting  # until it is read to be 0
        self._protecting = left | {file for file, value in wanted if value > 0 and file.resource in PROTECTIONS}
        for pod in look.pods:
            found = values.pods.get(pod.uid)
            if found is None or pod.uid in look.frozen:
                continue
            add(look.pod_directory(pod), found.pod)
            for container, directory in look.created_containers(pod):
                add(directory, found.containers.get(container.name, {}))
        return Proposal(isolating(look, state, wanted, plugin=PLUGIN, reason=AUDIT_REASON))

    def _left_behind(
        self, directory: str, files: Values, settings: MemoryQos, readings: Readings
    ) -> Iterator[CgroupFile]:
        """The protections of a class that its last pod left behind: they would take memory from all other pods.

        They are those that this strategy set, and those of a class whose protection it sets.
        """
        for name, percent in zip(PROTECTIONS, (settings.min_limit_percent, settings.low_limit_percent), strict=True):
            file = CgroupFile(directory, name)
            if name in files or (percent is None and file not in self._protecting):
                continue
            if (readings.read(file) or "0").strip() != "0":
                yield file
