"""From an effective configuration to profiles: each name of a plugin becomes the plugin over the cluster's facts.

A plugin that the configuration names and that this version does not have is passed over; `koord scheduler
check-config` says which these are. source    scheduler-core spec, 4
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from koordcore.protocol.objects import TopologySpreadConstraint
from koordcore.values.duration import NANOS_PER_SECOND
from koordcore.values.quantity import Quantity
from koordcore.values.resources import amount_of

from koord_scheduler.domain.config.args import koordinator, kubernetes
from koord_scheduler.domain.config.args.load_aware import LoadAwareSchedulingArgs
from koord_scheduler.domain.config.catalogue import Point
from koord_scheduler.domain.config.effective import EffectiveConfiguration, EffectiveProfile
from koord_scheduler.domain.config.gates import SchedulerGates
from koord_scheduler.domain.evaluate.optimisations import ALL_ON, Optimisations
from koord_scheduler.domain.framework.job_preempting import JobPreempting
from koord_scheduler.domain.framework.plugin_faults import package_of
from koord_scheduler.domain.framework.post_filter import PreemptionPlugin
from koord_scheduler.domain.framework.profile import Profile
from koord_scheduler.domain.gang.parameters import GangArgs
from koord_scheduler.domain.plugins.affinity.inter_pod_affinity import InterPodAffinity, InterPodAffinityArgs
from koord_scheduler.domain.plugins.affinity.node_affinity import NodeAffinity
from koord_scheduler.domain.plugins.affinity.node_name import NodeName
from koord_scheduler.domain.plugins.affinity.node_unschedulable import NodeUnschedulable
from koord_scheduler.domain.plugins.affinity.pod_topology_spread import PodTopologySpread, PodTopologySpreadArgs
from koord_scheduler.domain.plugins.affinity.scheduling_hint import SchedulingHint
from koord_scheduler.domain.plugins.affinity.taint_toleration import TaintToleration
from koord_scheduler.domain.plugins.jobs.coscheduling import Coscheduling
from koord_scheduler.domain.plugins.jobs.default_preemption import DefaultPreemption
from koord_scheduler.domain.plugins.jobs.elastic_quota import ElasticQuota
from koord_scheduler.domain.plugins.jobs.scheduling_gates import SchedulingGates
from koord_scheduler.domain.plugins.jobs.topology_coscheduling import TopologyCoscheduling
from koord_scheduler.domain.plugins.resources.dynamic_resources import DynamicResources
from koord_scheduler.domain.plugins.resources.load_aware_scheduling import LoadAwareScheduling
from koord_scheduler.domain.plugins.resources.node_resources_balanced_allocation import (
    BalancedAllocationArgs,
    NodeResourcesBalancedAllocation,
)
from koord_scheduler.domain.plugins.resources.node_resources_fit import FitArgs, NodeResourcesFit
from koord_scheduler.domain.plugins.resources.node_resources_fit_plus import NodeResourcesFitPlus
from koord_scheduler.domain.plugins.resources.resource_scores import ShapePoint
from koord_scheduler.domain.plugins.resources.scarce_resource_avoidance import ScarceResourceAvoidance
from koord_scheduler.domain.plugins.volumes.volume_binding import VolumeBinding
from koord_scheduler.domain.plugins.volumes.volume_restrictions import VolumeRestrictions
from koord_scheduler.domain.pods.transformers import PodTransformers
from koord_scheduler.domain.quota.specs.settings import QuotaGates, QuotaSettings
from koord_scheduler.domain.runtime.cluster import Cluster
from koord_scheduler.domain.runtime.frameworks import Frameworks

# A plugin is whatever implements some of the protocols of `plugins.interface`: Any is the honest type here.
Plugin = Any
Maker = Callable[[Cluster, EffectiveProfile], Plugin]


@dataclass(slots=True)
class _Made:
    """The plugins of one profile by name, each made once."""

    cluster: Cluster
    profile: EffectiveProfile
    makers: Mapping[str, Maker]
    installed: frozenset[str] = frozenset()
    by_name: dict[str, Plugin] = field(default_factory=dict[str, Plugin])

    def at(self, point: Point) -> list[Plugin]:
        """The plugins of an extension point, in order."""
        return [plugin for name in self.profile.points[point] if (plugin := self._of(name)) is not None]

    def having(self, method: str, point: Point | None = None) -> tuple[Plugin, ...]:
        """Those of them that have a method; None: of all plugins."""
        return tuple(plugin for plugin in (self.all() if point is None else self.at(point)) if hasattr(plugin, method))

    def all(self) -> list[Plugin]:
        """Every plugin that runs somewhere in the profile."""
        names = dict.fromkeys(name for point in Point for name in self.profile.points[point])
        return [plugin for name in names if (plugin := self._of(name)) is not None]

    def _of(self, name: str) -> Plugin | None:
        if name not in self.by_name and name in self.makers:
            self.by_name[name] = self.makers[name](self.cluster, self.profile)
            if name in self.installed:
                _join(self.cluster, self.by_name[name])
        return self.by_name.get(name)


def _fit(_: Cluster, profile: EffectiveProfile) -> NodeResourcesFit:
    args = profile.args_of("NodeResourcesFit", kubernetes.NodeResourcesFitArgs)
    strategy = args.scoring_strategy
    ratio = strategy.requested_to_capacity_ratio
    points = ratio.shape if ratio is not None else ()
    return NodeResourcesFit(
        FitArgs(
            strategy=strategy.type,
            resources=tuple((each.name, each.weight) for each in strategy.resources),
            shape=tuple(ShapePoint(point.utilization, point.score) for point in points) or FitArgs().shape,
            ignored_resources=frozenset(args.ignored_resources),
            ignored_resource_groups=frozenset(args.ignored_resource_groups),
        )
    )


def _balanced(_: Cluster, profile: EffectiveProfile) -> NodeResourcesBalancedAllocation:
    name = "NodeResourcesBalancedAllocation"
    args = profile.args_of(name, kubernetes.NodeResourcesBalancedAllocationArgs)
    resources = tuple((each.name, each.weight) for each in args.resources)
    return NodeResourcesBalancedAllocation(BalancedAllocationArgs(resources=resources))


def _affinity(_: Cluster, profile: EffectiveProfile) -> NodeAffinity:
    return NodeAffinity(profile.args_of("NodeAffinity", kubernetes.NodeAffinityArgs).added_affinity)


def _spread(cluster: Cluster, profile: EffectiveProfile) -> PodTopologySpread:
    args = profile.args_of("PodTopologySpread", kubernetes.PodTopologySpreadArgs)
    defaults = tuple(
        TopologySpreadConstraint(
            max_skew=each.max_skew, topology_key=each.topology_key, when_unsatisfiable=each.when_unsatisfiable
        )
        for each in args.default_constraints
    )
    own = PodTopologySpreadArgs(default_constraints=defaults, defaulting_type=args.defaulting_type)
    return PodTopologySpread(cluster.nodes, cluster.population, cluster.owners, own)


def _pods(cluster: Cluster, profile: EffectiveProfile) -> InterPodAffinity:
    args = profile.args_of("InterPodAffinity", kubernetes.InterPodAffinityArgs)
    own = InterPodAffinityArgs(
        hard_pod_affinity_weight=args.hard_pod_affinity_weight,
        ignore_preferred_terms_of_existing_pods=args.ignore_preferred_terms_of_existing_pods,
    )
    return InterPodAffinity(cluster.nodes, cluster.population, own)


def _load(cluster: Cluster, profile: EffectiveProfile) -> LoadAwareScheduling:
    args = profile.args_of("LoadAwareScheduling", LoadAwareSchedulingArgs)
    known = next((each for each in cluster.node_followers if isinstance(each, LoadAwareScheduling)), None)
    if known is not None and known.load.args == args:
        return known
    plugin = LoadAwareScheduling(cluster.nodes, args)
    cluster.node_followers.append(plugin)
    cluster.accounting.followers.append(plugin)
    cluster.pod_classes.readers.append(plugin)
    return plugin


def _gangs(cluster: Cluster, profile: EffectiveProfile) -> Coscheduling:
    args = profile.args_of("Coscheduling", koordinator.CoschedulingArgs)
    if not args.aware_network_topology:
        return Coscheduling(cluster.gangs)
    known = next((each for each in cluster.accounting.followers if isinstance(each, TopologyCoscheduling)), None)
    if known is not None:
        return known
    plugin = TopologyCoscheduling(cluster)
    cluster.accounting.followers.append(plugin)
    cluster.pod_classes.readers.append(plugin)
    return plugin


def _hint(cluster: Cluster, profile: EffectiveProfile) -> SchedulingHint:
    plugin = SchedulingHint(profile.args_of("SchedulingHint", koordinator.SchedulingHintArgs))
    if all(reader.name != plugin.name for reader in cluster.pod_classes.readers):
        cluster.pod_classes.readers.append(plugin)
    return plugin


MAKERS: Final[Mapping[str, Maker]] = {
    "SchedulingGates": lambda _, __: SchedulingGates(),
    "NodeUnschedulable": lambda _, __: NodeUnschedulable(),
    "NodeName": lambda _, __: NodeName(),
    "TaintToleration": lambda _, __: TaintToleration(),
    "NodeAffinity": _affinity,
    "NodePorts": lambda cluster, _: cluster.ports,
    "NodeResourcesFit": _fit,
    "NodeResourcesBalancedAllocation": _balanced,
    "VolumeBinding": lambda cluster, _: VolumeBinding(cluster.nodes, cluster.volumes),
    "VolumeRestrictions": lambda cluster, _: VolumeRestrictions(cluster.volumes),
    "PodTopologySpread": _spread,
    "InterPodAffinity": _pods,
    "ImageLocality": lambda cluster, _: cluster.images,
    "DynamicResources": lambda _, __: DynamicResources(),
    "LoadAwareScheduling": _load,
    "Coscheduling": _gangs,
    "ElasticQuota": lambda cluster, _: ElasticQuota(cluster.quotas),
    "DefaultPreemption": lambda _, profile: DefaultPreemption(
        profile.args_of("DefaultPreemption", kubernetes.DefaultPreemptionArgs)
    ),
    "SchedulingHint": _hint,
    "NodeResourcesFitPlus": lambda _, profile: NodeResourcesFitPlus(
        profile.args_of("NodeResourcesFitPlus", koordinator.NodeResourcesFitPlusArgs)
    ),
    "ScarceResourceAvoidance": lambda _, profile: ScarceResourceAvoidance(
        profile.args_of("ScarceResourceAvoidance", koordinator.ScarceResourceAvoidanceArgs)
    ),
}
"""What this version has, by name."""


def frameworks_of(
    configuration: EffectiveConfiguration,
    gates: SchedulerGates | None = None,
    *,
    more: Mapping[str, Maker] | None = None,
    aliases: Collection[str] = (),
    optimisations: Optimisations = ALL_ON,
) -> Frameworks:
    """All profiles of a configuration over one set of facts.

    more       plugins that a user has installed, by name
    aliases    scheduler names whose pods the first profile schedules, too
    """
    gates = gates or SchedulerGates()
    transformers = PodTransformers(
        priority=gates.priority_transformer,
        preemption_policy=gates.preemption_policy_transformer,
        replace_resources=gates.replace_resources_transformer,
    )
    cluster = Cluster(_quota_settings(configuration, gates), _gang_args(configuration), transformers)
    makers = {**MAKERS, **(more or {})}
    installed = frozenset(more or ())
    made = [_Made(cluster, profile, makers, installed) for profile in configuration.profiles]
    profiles = [_profile(each) for each in made]
    cluster.pod_classes.transformers = {
        **dict.fromkeys(aliases, profiles[0].transformers),
        **{profile.scheduler_name: profile.transformers for profile in profiles},
    }
    packages: dict[str, list[str]] = {}
    for each in made:
        for name in each.by_name.keys() & installed:
            names = packages.setdefault(package_of(each.by_name[name]), [])
            if name not in names:
                names.append(name)
    told = {package: " or ".join(sorted(names)) for package, names in packages.items()}
    return Frameworks(cluster, profiles, aliases, gates, optimisations, told)


def _join(cluster: Cluster, plugin: Plugin) -> None:
    """A user's plugin hears of nodes and of pods on nodes, and reads pods, as far as it can."""
    if hasattr(plugin, "put_node"):
        cluster.node_followers.append(plugin)
    if hasattr(plugin, "took"):
        cluster.accounting.followers.append(plugin)
    if hasattr(plugin, "read"):
        cluster.pod_classes.readers.append(plugin)


def _profile(made: _Made) -> Profile:
    profile = made.profile
    filters, scores = made.at(Point.FILTER), made.at(Point.SCORE)
    weighted = [(plugin, profile.weights[plugin.name]) for plugin in scores]
    return Profile(
        scheduler_name=profile.scheduler_name,
        filters=tuple(_shape_first(plugin for plugin in filters if hasattr(plugin, "filter"))),
        scores=tuple((plugin, weight) for plugin, weight in weighted if hasattr(plugin, "score")),
        coupled_filters=tuple(plugin for plugin in filters if hasattr(plugin, "filter_for")),
        coupled_scores=tuple((plugin, weight) for plugin, weight in weighted if hasattr(plugin, "score_for")),
        settings=profile.as_json(),
        percentage_of_nodes_to_score=profile.percentage_of_nodes_to_score,
        pre_enqueues=made.having("pre_enqueue", Point.PRE_ENQUEUE),
        next_pod=next(iter(made.having("next_pod", Point.PRE_ENQUEUE)), None),
        transformers=made.having("transform", Point.PRE_FILTER),
        before_pre_filters=made.having("before_pre_filter", Point.PRE_FILTER),
        pre_filters=made.having("pre_filter", Point.PRE_FILTER),
        after_pre_filters=made.having("after_pre_filter", Point.PRE_FILTER),
        find_one_node=next(iter(made.having("find_one_node", Point.PRE_FILTER)), None),
        before_filters=made.having("before_filter", Point.FILTER),
        before_scores=made.having("before_score", Point.SCORE),
        resizers=made.having("resize_pod", Point.RESERVE),
        reserves=made.having("reserve", Point.RESERVE),
        permits=made.having("permit", Point.PERMIT),
        after_post_filters=made.having("after_post_filter", Point.POST_FILTER),
        preemptions=tuple(_preemptions(made)),
        pre_binds=made.having("pre_bind", Point.PRE_BIND),
        before_failures=made.having("before_failure"),
        after_failures=made.having("after_failure"),
        controllers=made.having("control"),
        pages=made.having("pages"),
        folding=made.having("apply"),
    )


def _preemptions(made: _Made) -> Iterator[PreemptionPlugin | JobPreempting]:
    """In the order of the point; gangs among them only if they are told to."""
    for plugin in made.at(Point.POST_FILTER):
        if isinstance(plugin, Coscheduling):
            if made.profile.args_of(plugin.name, koordinator.CoschedulingArgs).enable_preemption:
                yield JobPreempting(plugin.gangs)
        elif hasattr(plugin, "may_preempt"):
            yield plugin


def _shape_first(filters: Iterable[Plugin]) -> list[Plugin]:
    """Plugins that read the shape of nodes only go first: their answers outlive every placement."""
    return sorted(filters, key=lambda plugin: plugin.reads.name != "SHAPE")


def _quota_settings(configuration: EffectiveConfiguration, gates: SchedulerGates) -> QuotaSettings:
    args = next(
        (found for profile in configuration.profiles if (found := profile.args.get("ElasticQuota")) is not None),
        koordinator.ElasticQuotaArgs(),
    )
    assert isinstance(args, koordinator.ElasticQuotaArgs), "ElasticQuota takes its own arguments"
    return QuotaSettings(
        gates=QuotaGates(
            multi_quota_tree=gates.multi_quota_tree,
            ignore_pod_overhead=gates.elastic_quota_ignore_pod_overhead,
            ignore_terminating_pod=gates.elastic_quota_ignore_terminating_pod,
            immediate_ignore_terminating_pod=gates.elastic_quota_immediate_ignore_terminating_pod,
            guarantee_usage=gates.elastic_quota_guarantee_usage,
            disable_default_quota=gates.disable_default_quota,
            support_parent_quota_submit_pod=gates.support_parent_quota_submit_pod,
        ),
        delay_evict_seconds=args.delay_evict_time,
        revoke_pod_interval_seconds=args.revoke_pod_interval,
        default_quota_group_max=_amounts(args.default_quota_group_max),
        system_quota_group_max=_amounts(args.system_quota_group_max),
        quota_group_namespace=args.quota_group_namespace,
        monitor_all_quotas=args.monitor_all_quotas,
        enable_queue_hint=args.enable_queue_hint,
        quota_snapshot_interval_seconds=args.quota_snapshot_update_interval,
        enable_check_parent_quota=args.enable_check_parent_quota,
        enable_runtime_quota=args.enable_runtime_quota,
        enable_min_quota_scale=args.enable_min_quota_scale,
        disable_default_quota_preemption=args.disable_default_quota_preemption,
    )


def _amounts(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    return {name: amount_of(name, quantity) for name, quantity in quantities.items()}


def _gang_args(configuration: EffectiveConfiguration) -> GangArgs:
    args = next(
        (found for profile in configuration.profiles if (found := profile.args.get("Coscheduling")) is not None),
        koordinator.CoschedulingArgs(),
    )
    assert isinstance(args, koordinator.CoschedulingArgs), "Coscheduling takes its own arguments"
    return GangArgs(
        default_wait_nanos=int(args.default_timeout * NANOS_PER_SECOND),
        default_match_policy=args.default_match_policy,
        is_topology_aware=args.aware_network_topology,
    )
