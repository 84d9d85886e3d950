"""Builds profiles from an effective configuration: each plugin name becomes the plugin over the cluster's facts.

A plugin that the configuration names and that this version does not have is passed over; `koord scheduler
check-config` says which these are. source    scheduler-core spec, 4
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from koordcore.values.duration import NANOS_PER_SECOND
from koordcore.values.quantity import Quantity
from koordcore.values.resources import amount_of

from koord_scheduler.domain.config.args import koordinator
from koord_scheduler.domain.config.effective import EffectiveConfiguration, EffectiveProfile
from koord_scheduler.domain.config.gates import SchedulerGates
from koord_scheduler.domain.evaluate.optimisations import ALL_ON, Optimisations
from koord_scheduler.domain.facts.cluster import Cluster
from koord_scheduler.domain.framework.extension_point import ExtensionPoint
from koord_scheduler.domain.framework.extension_points import CONCERNS, EXTENSION_POINTS, FILTER, TRANSFORM_POD
from koord_scheduler.domain.framework.node_points import ConcernedPlugin, FilterPlugin, Reads
from koord_scheduler.domain.framework.plugin import Plugin, checked, declares
from koord_scheduler.domain.framework.plugin_faults import package_of
from koord_scheduler.domain.framework.points import Point
from koord_scheduler.domain.framework.profile import PluginLists, Profile
from koord_scheduler.domain.gang.parameters import GangArgs
from koord_scheduler.domain.plugins.registry import MAKERS, Maker
from koord_scheduler.domain.pods.transformers import PodTransformers
from koord_scheduler.domain.quota.specs.settings import QuotaGates, QuotaSettings
from koord_scheduler.domain.runtime.frameworks import Frameworks


@dataclass(slots=True)
class _Made:
    """The plugins of one profile by name, each made once."""

    cluster: Cluster
    profile: EffectiveProfile
    makers: Mapping[str, Maker]
    by_name: dict[str, Plugin] = field(default_factory=dict[str, Plugin])

    def at(self, point: ExtensionPoint[Any]) -> list[Plugin]:
        """Return the plugins that implement an extension point, in order."""
        places = Point if point.enabled_at is None else (point.enabled_at,)
        names = dict.fromkeys(name for place in places for name in self.profile.points[place])
        found = (plugin for name in names if (plugin := self._of(name)) is not None)
        return [plugin for plugin in found if declares(plugin, point)]

    def _of(self, name: str) -> Plugin | None:
        if name not in self.by_name and name in self.makers:
            plugin = self.by_name[name] = checked(self.makers[name](self.cluster, self.profile))
            self.cluster.join(plugin)
        return self.by_name.get(name)


def frameworks_of(
    configuration: EffectiveConfiguration,
    gates: SchedulerGates | None = None,
    *,
    more: Mapping[str, Maker] | None = None,
    aliases: Collection[str] = (),
    optimisations: Optimisations = ALL_ON,
) -> Frameworks:
    """Return the frameworks of all profiles of a configuration, over one set of facts.

    Args:
        more: Plugins that a user has installed, by name.
        aliases: Scheduler names whose pods the first profile schedules, too.
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
    made = [_Made(cluster, profile, makers) for profile in configuration.profiles]
    profiles = [_profile(each) for each in made]
    cluster.pod_classes.transformers = {
        **dict.fromkeys(aliases, profiles[0].plugins.at(TRANSFORM_POD)),
        **{profile.scheduler_name: profile.plugins.at(TRANSFORM_POD) for profile in profiles},
    }
    packages: dict[str, list[str]] = {}
    for each in made:
        for name in each.by_name.keys() & installed:
            names = packages.setdefault(package_of(each.by_name[name]), [])
            if name not in names:
                names.append(name)
    told = {package: " or ".join(sorted(names)) for package, names in packages.items()}
    return Frameworks(cluster, profiles, aliases, gates, optimisations, told)


def _profile(made: _Made) -> Profile:
    profile, known = made.profile, made.cluster.pod_classes.concerned
    lists = {point: made.at(point) for point in EXTENSION_POINTS}
    # Answers of filters that read the shape of nodes only outlive every placement: they go first.
    lists[FILTER].sort(key=lambda plugin: cast("FilterPlugin", plugin).reads is not Reads.SHAPE)
    return Profile(
        PluginLists(lists),
        profile.weights,
        settings=profile.as_json(),
        concerned=[(plugin, 1 << known.index(cast("ConcernedPlugin", plugin))) for plugin in lists[CONCERNS]],
        scheduler_name=profile.scheduler_name,
        percentage_of_nodes_to_score=profile.percentage_of_nodes_to_score,
    )


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
