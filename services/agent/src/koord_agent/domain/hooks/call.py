"""One call of the hooks: its stage, the pod or container with its present values, the rules of the node, the answer.

Source: runtime spec, 2.1 to 2.5.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property

from koordcore.protocol import keys
from koordcore.protocol.annotations.allocation import allocation_annotations
from koordcore.protocol.qos import KubeQos
from koordcore.values.allocation import NOTHING as NO_ALLOCATION

from koord_agent.domain.hooks.allocated_devices import HAMI_LIBRARY, NO_DEVICES, BindMount, CharDevice, DeviceFiles
from koord_agent.domain.kernel.cfs_bandwidth import CFS_PERIOD_US, QUOTA, in_period
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.strategies.cpuset import CpusetRule, ResourceStatus, cpuset_rule_of, resource_status
from koord_agent.domain.strategies.group_identity import BvtKernel, BvtRule, bvt_rule
from koord_agent.domain.strategies.pod_resources import is_suppressed_by_quota, normalization_ratio


class Mode(StrEnum):
    """PROXY: a CRI proxy calls the RuntimeHookService. NRI: the container runtime calls the agent as its plug-in.

    RECONCILER: a cycle of the agent sets values that the other modes missed.
    """

    PROXY = "Proxy"
    NRI = "NRI"
    RECONCILER = "Reconciler"


class Stage(StrEnum):
    """A stage in the life of a pod or container, by its name in registration files."""

    PRE_RUN_POD_SANDBOX = "PreRunPodSandbox"
    POST_STOP_POD_SANDBOX = "PostStopPodSandbox"
    PRE_CREATE_CONTAINER = "PreCreateContainer"
    PRE_START_CONTAINER = "PreStartContainer"
    POST_START_CONTAINER = "PostStartContainer"
    PRE_UPDATE_CONTAINER = "PreUpdateContainerResources"
    POST_STOP_CONTAINER = "PostStopContainer"
    PRE_REMOVE_POD_SANDBOX = "PreRemoveRunPodSandbox"
    """Only the NRI mode has this stage."""


POD_STAGES = (Stage.PRE_RUN_POD_SANDBOX, Stage.POST_STOP_POD_SANDBOX, Stage.PRE_REMOVE_POD_SANDBOX)
"""Stages of a pod; the other stages are those of a container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookValues:
    """Values for a pod or container. None, or an empty collection, means that a value stays as it is."""

    bvt: int | None = None  # Value of cpu.bvt_warp_ns
    cpu_shares: int | None = None
    cfs_quota_us: int | None = None  # CPU quota in microseconds per period of 100 ms; -1 means unlimited
    cpuset: str | None = None  # CPU list; "" clears it
    memory_limit_bytes: int | None = None  # Memory limit in bytes; -1 means unlimited
    resctrl_group: str | None = None  # Name of the pod's own resctrl group
    resctrl_schemata: str | None = None  # Text of the schemata of the group. "" sets no limit.
    # Environment variables to add or replace: name -> value.
    envs: Mapping[str, str] = field(default_factory=dict[str, str])
    mounts: tuple[BindMount, ...] = ()  # Paths of the machine to add, each with its path in the container
    devices: tuple[CharDevice, ...] = ()
    # Folder to create on the machine. If it exists, it is deleted with its contents first. "" for none.
    host_dir: str = ""
    # Why a value could not be decided and stays unset, as a sentence; the other values count. "" for no problem.
    problem: str = ""

    def then(self, later: "HookValues") -> "HookValues":
        """A later hook takes precedence, also for variables of one name. Mounts, devices and problems add up."""
        scalars = {name: value for name in SCALARS if (value := getattr(later, name)) is not None}
        return replace(
            self,
            **scalars,
            envs={**self.envs, **later.envs},
            mounts=(*self.mounts, *later.mounts),
            devices=(*self.devices, *later.devices),
            host_dir=later.host_dir or self.host_dir,
            problem="; ".join(filter(None, (self.problem, later.problem))),
        )

    def in_period(self, period_us: int) -> "HookValues":
        """With the quota in microseconds per period, as messages to a runtime have it. A period of 0 means 100 ms."""
        if self.cfs_quota_us is None:
            return self
        return replace(self, cfs_quota_us=in_period(QUOTA, self.cfs_quota_us, period_us or CFS_PERIOD_US))

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yield the name and text of each value that is set, for explanations. A mount or device is named by its path.

        A memory limit or quota of -1 (unlimited) has the text "-1". `host_dir` and `problem` are not among them.
        """
        for name in SCALARS:
            value = getattr(self, name)
            if value is not None:
                yield name, str(value)
        for name, value in self.envs.items():
            yield f"env {name}", value
        for mount in self.mounts:
            yield f"mount {mount.destination}", mount.source
        for device in self.devices:
            yield f"device {device.path}", f"{device.major}:{device.minor}"


SCALARS = tuple(
    one.name for one in fields(HookValues) if one.name not in ("envs", "mounts", "devices", "host_dir", "problem")
)
"""Names of the values that are one number or text."""
NOTHING = HookValues()


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOptions:
    """Flags that change what plug-ins decide."""

    # Whether pods that own CPUs get no CPU quota; False with the flag -disable-unset-cpu-quota.
    unsets_quota: bool = True
    be_by_manager: bool = False  # Whether the gate BECPUManager is on
    suppresses: bool = True  # Whether the gates let CPU suppression limit best-effort pods
    hami_library: str = HAMI_LIBRARY  # Path of the HAMi-core library on the machine
    is_gpu_monitored: bool = False  # Whether the gate HamiCoreVGPUMonitor is on


@dataclass(frozen=True, slots=True, kw_only=True)
class ResctrlMachine:
    """Caches of a machine with resctrl."""

    cbm_mask: str  # Mask of all cache ways in hexadecimal
    cache_ids: tuple[int, ...]
    vendor: str  # Vendor in whose unit bandwidth is counted; `UNKNOWN_VENDOR` if bandwidth is left alone


@dataclass(frozen=True, kw_only=True)
class HookRules:
    """The rules and facts of the node that plug-ins use, parsed once for all calls until the next snapshot."""

    bvt: BvtRule = field(default_factory=BvtRule)
    # Whether this kernel supports group identity.
    bvt_kernel: BvtKernel = field(default_factory=lambda: BvtKernel(has_file=False))
    cpuset: CpusetRule | None = None  # CPUs that each kind of pods may use. None if not known.
    ratio: float | None = None  # CPU normalization ratio of the node. None if there is none.
    # Whether best-effort pods get no CPU quota, because CPU suppression limits their class by one.
    be_unlimited: bool = False
    options: HookOptions = field(default_factory=HookOptions)
    devices: DeviceFiles = NO_DEVICES
    resctrl: ResctrlMachine | None = None  # Caches of the machine. None without resctrl.
    # UID in the requests of the kubelet -> pod, for the pods that the agent knows.
    pods: Mapping[str, AgentPod] = field(default_factory=dict[str, AgentPod])


def rules_of_look(look: NodeLook, machine: HookRules) -> HookRules:
    """Raises InvalidInput: The annotation of system QoS is malformed."""
    by_quota = is_suppressed_by_quota(look.section("resourceUsedThresholdWithBE"), look.cpu_count)
    return replace(
        machine,
        bvt=bvt_rule(look.section("resourceQOSStrategy")),
        cpuset=cpuset_rule_of(look.pools, look.annotations, is_static=look.kubelet_static),
        ratio=normalization_ratio(look.annotations),
        be_unlimited=machine.options.suppresses and by_quota,
        pods=look.by_cgroup_uid,
    )


@dataclass(frozen=True, kw_only=True)
class HookedPod:
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    cgroup_parent: str = ""  # Cgroup directory of the pod, as the kubelet gives it to the runtime

    @cached_property
    def qos_label(self) -> str:
        """Empty without one."""
        return self.labels.get(keys.QOS_CLASS, "")

    @cached_property
    def kube_qos(self) -> KubeQos:
        """The class that the cgroup directory names; Guaranteed if it names none."""
        for qos in (KubeQos.BEST_EFFORT, KubeQos.BURSTABLE):
            if qos.value.lower() in self.cgroup_parent:
                return qos
        return KubeQos.GUARANTEED


@dataclass(frozen=True, slots=True, kw_only=True)
class HookedContainer:
    name: str
    id: str = ""  # `<runtime>://<id>`; "" before it is created
    # Kernel values that the kubelet's request sets, before hooks change them. A value that the request does not set is
    # None; the runtime then chooses it.
    before: HookValues = NOTHING


@dataclass(frozen=True, kw_only=True)
class HookCall:
    mode: Mode
    stage: Stage
    pod: HookedPod
    container: HookedContainer | None = None  # The container; None at the stages of a pod

    def annotations(self, rules: HookRules) -> Mapping[str, str]:
        """The annotations of the pod, with its allocation from the agent's own records if they lack it.

        A pod may start before the scheduler has written its allocation to the annotations that the runtime gets.
        """
        known = rules.pods.get(self.pod.uid)
        if known is None or known.allocation is NO_ALLOCATION:
            return self.pod.annotations
        return {**allocation_annotations(known.allocation, self.pod.annotations), **self.pod.annotations}

    def status(self, rules: HookRules) -> ResourceStatus:
        """Raises InvalidInput: The annotation is malformed."""
        return resource_status(self.annotations(rules))
