"""Builds profiles from an effective configuration: each plugin name becomes a plugin over the cluster's facts.

Plugins that the configuration names and that this version does not have are skipped; `koord scheduler check-config`
reports them.

Source: scheduler-core spec, 4
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from koord_scheduler.domain.config.effective import EffectiveConfiguration, EffectiveProfile
from koord_scheduler.domain.config.koordinator_args import CoschedulingArgs, ElasticQuotaArgs
from koord_scheduler.domain.engine.decision import ALL_ON, Optimisations
from koord_scheduler.domain.engine.frameworks import Frameworks
from koord_scheduler.domain.framework import extension_points as points
from koord_scheduler.domain.framework.cluster import Cluster
from koord_scheduler.domain.framework.gates import SchedulerGates
from koord_scheduler.domain.framework.node_points import ConcernedPlugin, FilterPlugin, Reads
from koord_scheduler.domain.framework.plugin import ExtensionPoint, Plugin, Point, checked, declares, package_of
from koord_scheduler.domain.framework.profile import PluginLists, Profile
from koord_scheduler.domain.framework.topology_hints import TopologyHintsPlugin, TopologyManagerPlugin
from koord_scheduler.domain.plugins.books import make_books
from koord_scheduler.domain.plugins.registry import MAKERS, Maker


@dataclass(slots=True)
class _Made:
    """The plugins of one profile by name, each created once."""

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
    """Create the plugins of all profiles of a configuration. All profiles share one set of facts about the cluster.
    `more`: name -> function that creates an installed plugin.
    """
    gates = gates or SchedulerGates()
    cluster = Cluster(gates)
    make_books(cluster, configuration.args(ElasticQuotaArgs), configuration.args(CoschedulingArgs))
    makers = {**MAKERS, **(more or {})}
    installed = frozenset(more or ())
    made = [_Made(cluster, profile, makers) for profile in configuration.profiles]
    profiles = [_profile(each) for each in made]
    cluster.pod_classes.transformers = {
        **dict.fromkeys(aliases, profiles[0].plugins.at(points.TRANSFORM_POD)),
        **{profile.scheduler_name: profile.plugins.at(points.TRANSFORM_POD) for profile in profiles},
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
    lists = {point: made.at(point) for point in points.EXTENSION_POINTS}
    for manager in lists[points.TOPOLOGY_MANAGER]:
        cast("TopologyManagerPlugin", manager).use_hints_of(
            cast("list[TopologyHintsPlugin]", lists[points.TOPOLOGY_HINTS])
        )
    # Answers of filters that read the shape of nodes only outlive every placement: they go first.
    lists[points.FILTER].sort(key=lambda plugin: cast("FilterPlugin", plugin).reads is not Reads.SHAPE)
    # The plugin that names the next pod of a gang learns of every attempt, also of one that another plugin rejects.
    lists[points.PRE_FILTER].sort(key=lambda plugin: not declares(plugin, points.NEXT_POD))
    return Profile(
        PluginLists(lists),
        profile.weights,
        settings=profile.as_json(),
        concerned=[(plugin, 1 << known.index(cast("ConcernedPlugin", plugin))) for plugin in lists[points.CONCERNS]],
        scheduler_name=profile.scheduler_name,
        percentage_of_nodes_to_score=profile.percentage_of_nodes_to_score,
    )
