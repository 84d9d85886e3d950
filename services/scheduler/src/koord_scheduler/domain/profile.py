"""Which plugins a scheduler uses, in which order, with which weights; its digest is the policy version of decisions."""

from dataclasses import dataclass
from hashlib import blake2b

from koordcore.values import codec

from koord_scheduler.domain.plugins.interface import FilterPlugin, ScorePlugin
from koord_scheduler.domain.plugins.node_affinity import NodeAffinity
from koord_scheduler.domain.plugins.node_name import NodeName
from koord_scheduler.domain.plugins.node_resources_fit import FitArgs, NodeResourcesFit
from koord_scheduler.domain.plugins.node_unschedulable import NodeUnschedulable
from koord_scheduler.domain.plugins.taint_toleration import TaintToleration


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The plugins of one scheduler name.

    filters     in the order in which they refuse: those that read only the shape of nodes first
    scores      with their weights
    settings    everything that distinguishes this profile from another, as JSON values
    """

    filters: tuple[FilterPlugin, ...]
    scores: tuple[tuple[ScorePlugin, int], ...]
    settings: object

    def policy_version(self) -> str:
        """Digest of the effective configuration, 16 hex digits."""
        description = {
            "filters": [plugin.name for plugin in self.filters],
            "scores": [[plugin.name, weight] for plugin, weight in self.scores],
            "settings": self.settings,
        }
        return blake2b(codec.encode_canonical(description), digest_size=8).hexdigest()


def default_profile(fit: FitArgs | None = None) -> Profile:
    """The shipped profile with the plugins that exist so far.

    source    scheduler-core spec, 4 (order of the default set, weights, pluginConfig)
    """
    args = fit or FitArgs()
    taints, affinity, resources = TaintToleration(), NodeAffinity(), NodeResourcesFit(args)
    return Profile(
        filters=(NodeUnschedulable(), NodeName(), taints, affinity, resources),
        scores=((taints, 3), (affinity, 2), (resources, 1)),
        settings={
            "NodeResourcesFit": {
                "strategy": args.strategy,
                "resources": args.resources,
                "shape": args.shape,
                "ignoredResources": sorted(args.ignored_resources),
                "ignoredResourceGroups": sorted(args.ignored_resource_groups),
            }
        },
    )
