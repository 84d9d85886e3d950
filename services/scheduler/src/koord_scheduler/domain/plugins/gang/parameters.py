"""The scheduling parameters of a gang: size, mode, match policy, wait time, group, network topology.

Source: scheduler-core spec, 8.1; protocol spec, 4.2; vectors scheduler/gang_spec
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from koordcore.protocol import keys, lenient_json
from koordcore.protocol.annotations import gang as keys_of_gangs
from koordcore.protocol.objects import KubeStruct, ObjectMeta, Pod
from koordcore.values.duration import NANOS_PER_SECOND
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.config.koordinator_args import CoschedulingArgs

MUST_GATHER: Final = "MustGather"


class PodGroupSpec(KubeStruct):
    """`spec` of a PodGroup: the number of members needed at least, and the wait time in seconds."""

    min_member: int = 0
    schedule_timeout_seconds: int = 0


class PodGroupStatus(KubeStruct):
    """`status` of a PodGroup; times are RFC 3339 text."""

    phase: str = ""
    occupied_by: str = ""
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    schedule_start_time: str | None = None


class PodGroup(KubeStruct):
    """A `scheduling.sigs.k8s.io/v1alpha1` PodGroup."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)


class GatherRule(KubeStruct):
    """How the members of a job gather in the domains of one layer of the network, such as a spine or block."""

    layer: str = ""  # Name of the layer
    strategy: str = ""  # `MustGather`: all members in one domain. Any other value: a preference for one domain.
    # A domain of the layer takes only multiples of this number of pods. With 0 or 1, any number.
    pod_count_multiple: int = 0


class _TopologySpec(KubeStruct):
    gather_strategy: tuple[GatherRule, ...] = ()


class GangParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduling parameters of a gang, from its PodGroup or from the annotations of its pods."""

    min_members: int  # Number of members that must have a node before any is bound
    total_members: int  # Number of members in all, at least `min_members`
    # Strict: if one member fails, all waiting members lose their nodes. NonStrict: the waiting members keep their
    # nodes.
    mode: str
    match_policy: str  # Which members count towards `min_members`: only-waiting, waiting-and-running or once-satisfied
    groups: tuple[str, ...]  # Sorted ids of the gangs that are released together
    wait_nanos: int  # Longest wait of a member with a node for the others, in nanoseconds
    gather: tuple[GatherRule, ...] | None = None  # Rules of its network topology spec, or None if it has no such spec

    @property
    def group_id(self) -> str:
        """Return the ids of the gangs in its group, joined by commas."""
        return ",".join(self.groups)

    @property
    def is_strict(self) -> bool:
        """Return whether the mode is Strict: if one member fails, all members that wait at Permit lose their nodes."""
        return self.mode == keys_of_gangs.MODE_STRICT


def gang_id_of(pod: Pod) -> str:
    """Return `namespace/name` of the pod's gang; "" if it belongs to no gang."""
    name = keys_of_gangs.gang_name(pod.metadata.labels, pod.metadata.annotations)
    return f"{pod.metadata.namespace}/{name}" if name else ""


def waits_for_pod_group(pod: Pod) -> bool:
    """Return whether the pod names its gang by the label `pod-group.scheduling.sigs.k8s.io`. The parameters of such a
    gang come only from a PodGroup.
    """
    return bool(pod.metadata.labels.get(keys.POD_GROUP))


def parameters_of_pod(pod: Pod, gang_id: str, args: CoschedulingArgs) -> GangParameters | None:
    """Return the gang parameters that the labels and annotations of a pod state. `gang_id`: `namespace/name` of its
    gang. `args`: arguments of the Coscheduling plugin, with defaults for parameters that the pod does not state.
    Result: None if the pod states no valid minimum number of members, or if `waits_for_pod_group` is True.
    """
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    if waits_for_pod_group(pod):
        return None
    try:
        min_members = keys_of_gangs.parse_gang_min_num(labels, annotations)
    except InvalidInput:
        return None
    return _parameters(gang_id, annotations, min_members, _pod_wait_nanos(annotations), args)


def parameters_of_pod_group(pod_group: PodGroup, args: CoschedulingArgs) -> GangParameters:
    """Return the gang parameters in a PodGroup, with the defaults of `args` for those that it does not state."""
    meta, spec = pod_group.metadata, pod_group.spec
    wait_nanos = max(spec.schedule_timeout_seconds, 0) * NANOS_PER_SECOND
    return _parameters(pod_group_id(pod_group), meta.annotations, spec.min_member, wait_nanos, args)


def pod_group_id(pod_group: PodGroup) -> str:
    """Return the id of the gang that the PodGroup describes: `namespace/name`."""
    return f"{pod_group.metadata.namespace}/{pod_group.metadata.name}"


def _parameters(
    gang_id: str, annotations: Mapping[str, str], min_members: int, wait_nanos: int, args: CoschedulingArgs
) -> GangParameters:
    mode = annotations.get(keys.GANG_MODE)
    is_non_strict = mode == keys_of_gangs.MODE_NON_STRICT
    return GangParameters(
        min_members=min_members,
        total_members=keys_of_gangs.gang_total_num(annotations, min_members),
        mode=keys_of_gangs.MODE_NON_STRICT if is_non_strict else keys_of_gangs.MODE_STRICT,
        match_policy=keys_of_gangs.gang_match_policy(annotations, args.default_match_policy),
        groups=_groups(annotations.get(keys.GANG_GROUPS, ""), gang_id),
        wait_nanos=wait_nanos if wait_nanos > 0 else round(args.default_timeout * NANOS_PER_SECOND),
        gather=_gather(annotations.get(keys.GANG_NETWORK_TOPOLOGY_SPEC, "")),
    )


def _pod_wait_nanos(annotations: Mapping[str, str]) -> int:
    try:
        return keys_of_gangs.parse_gang_wait_time(annotations)
    except InvalidInput:
        return 0


def _groups(text: str, gang_id: str) -> tuple[str, ...]:
    if not text:
        return (gang_id,)
    try:
        listed = lenient_json.decode(text, list[str])
    except InvalidInput:
        return (gang_id,)
    return tuple(sorted(listed)) or (gang_id,)


def _gather(text: str) -> tuple[GatherRule, ...] | None:
    if not text:
        return None
    try:
        return lenient_json.decode(text, _TopologySpec).gather_strategy
    except InvalidInput:
        return None
