"""Arguments of Koordinator's plugins, except load awareness and fine-grained resources.

Source:
    scheduler-core spec, 4.1
"""

from collections.abc import Mapping
from typing import Final, Literal

from koordcore.protocol import component_config
from koordcore.protocol.resource_names import CPU, MEMORY
from koordcore.values.quantity import Quantity, of_value


class CoschedulingArgs(component_config.WireModel):
    """Arguments of Coscheduling. `skip_check_schedule_cycle` is accepted without effect, as in Koordinator since v1.5.

    Attributes:
        controller_workers: Accepted without effect: one task does this work.
        default_timeout: Seconds that members wait at Permit for their gang, if the gang does not state it.
        default_match_policy: Match policy of a gang that does not state one.
        enable_preemption: Whether a gang may preempt other pods.
        aware_network_topology: Whether gangs with a topology spec are placed by the network topology.
    """

    default_timeout: component_config.Duration = 600.0
    controller_workers: component_config.Positive = 1
    skip_check_schedule_cycle: component_config.Bool = False
    enable_preemption: component_config.Bool = False
    aware_network_topology: component_config.Bool = False
    default_match_policy: Literal["once-satisfied", "only-waiting", "waiting-and-running"] = "once-satisfied"


class HookPlugin(component_config.WireModel):
    """The name and arguments of a hook of Koordinator's quota manager. This scheduler calls no such hooks."""

    key: component_config.Text
    factory_key: component_config.Text
    factory_args: component_config.Text = ""


UNLIMITED: Final = of_value(component_config.INT64_MAX // 5)
_UNLIMITED_GROUP: Final[Mapping[str, Quantity]] = {CPU: UNLIMITED, MEMORY: UNLIMITED}


class ElasticQuotaArgs(component_config.WireModel):
    """Arguments of ElasticQuota. Times are in seconds.

    Attributes:
        delay_evict_time: How long a quota may use more than its runtime before its pods are evicted.
        revoke_pod_interval: Interval between two checks of whether quotas use more than their runtime.
        default_quota_group_max: Max of the default quota, which pods without a quota use.
        system_quota_group_max: Max of the system quota.
        quota_group_namespace: Namespace of the objects of the root, default and system quotas.
        monitor_all_quotas: Whether pods of quotas that use more than their runtime are evicted. Also needs
            `enable_runtime_quota`.
        enable_check_parent_quota: Whether a pod must fit all ancestors of its quota, and not its quota alone.
        enable_runtime_quota: Whether a quota is limited by its runtime, which lends what others leave. If not, by max.
        enable_min_quota_scale: Whether mins of sibling quotas shrink together if the cluster has less than their sum.
        disable_default_quota_preemption: Whether a pod of the default quota evicts no pod of its quota to get a place.
        enable_queue_hint: Accepted without effect: a refused pod is always attempted again only if its quota admits it.
        quota_snapshot_update_interval: Accepted without effect: a refused pod is compared with the present quotas.
        hook_plugins: Hooks of Koordinator's quota manager. Accepted without effect: no hooks of quotas are called.
    """

    delay_evict_time: component_config.Duration = 120.0
    revoke_pod_interval: component_config.Duration = 1.0
    default_quota_group_max: component_config.Resources = _UNLIMITED_GROUP
    system_quota_group_max: component_config.Resources = _UNLIMITED_GROUP
    quota_group_namespace: component_config.Text = "koordinator-system"
    monitor_all_quotas: component_config.Bool = False
    enable_check_parent_quota: component_config.Bool = False
    enable_runtime_quota: component_config.Bool = True
    enable_min_quota_scale: component_config.Bool = True
    disable_default_quota_preemption: component_config.Bool = True
    enable_queue_hint: component_config.Bool = False
    quota_snapshot_update_interval: component_config.Duration = 120.0
    hook_plugins: tuple[HookPlugin, ...] = ()


class SchedulingHintArgs(component_config.WireModel):
    """Arguments of SchedulingHint.

    Attributes:
        max_hint_nodes: Maximum number of a pod's preferred nodes (in its hint annotation) that are tried.
    """

    max_hint_nodes: component_config.Positive = 100


class ResourceStrategy(component_config.WireModel):
    """Strategy of NodeResourcesFitPlus for one resource: the preferred nodes (`type`), and the weight of the score."""

    type: Literal["MostAllocated", "LeastAllocated"] = "LeastAllocated"
    weight: component_config.Weight = 1


class NodeResourcesFitPlusArgs(component_config.WireModel):
    """Arguments of NodeResourcesFitPlus: resource -> strategy."""

    resources: Mapping[component_config.Text, ResourceStrategy] = {}


class ScarceResourceAvoidanceArgs(component_config.WireModel):
    """Arguments of ScarceResourceAvoidance: resources that pods should leave to the pods that request them."""

    resources: tuple[component_config.Text, ...] = ()
