"""Names of the manager's controllers, which are their queues and the label `controller` of their metrics.

The flags `--controllers` and `--noderesource-plugins` decide which of them, and which node resource plugins, run.

Source:
    manager spec, 2.2, 2.3
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

NODE_METRIC: Final = "nodemetric"
NODE_RESOURCE: Final = "noderesource"
NODE_SLO: Final = "nodeslo"
QUOTA_PROFILE: Final = "quotaprofile"
COLOCATION_PROFILE: Final = "colocationprofile"
CONTROLLERS: Final = (NODE_METRIC, NODE_RESOURCE, NODE_SLO, QUOTA_PROFILE, COLOCATION_PROFILE)

MID: Final = "MidResource"
BATCH: Final = "BatchResource"
NORMALIZATION: Final = "CPUNormalization"
AMPLIFICATION: Final = "ResourceAmplification"
GPU: Final = "GPUDeviceResource"
RDMA: Final = "RDMADeviceResource"
PLUGINS: Final = (MID, BATCH, NORMALIZATION, AMPLIFICATION, GPU, RDMA)

_EVERYTHING: Final = "*"
_ALSO_CALLED: Final = {"profile": QUOTA_PROFILE}
"""Names that published manifests use (protocol spec, 11.1)."""


def is_enabled(name: str, entries: Sequence[str]) -> bool:
    """Return whether a flag such as `--controllers=*,-nodeslo` enables a controller or plugin.

    The entry `NAME` enables it and `-NAME` disables it; the first of these counts. Without such an entry it is
    enabled if the flag contains `*`.

    Source: manager spec, 2.3.
    """
    for entry in entries:
        named = entry.removeprefix("-")
        if _ALSO_CALLED.get(named, named) == name:
            return entry == named
    return _EVERYTHING in entries


def enabled_of(names: Iterable[str], entries: Sequence[str]) -> frozenset[str]:
    """Return the names of controllers or plugins that the entries of a flag enable, as `is_enabled` decides."""
    return frozenset(name for name in names if is_enabled(name, entries))


__all__ = ["COLOCATION_PROFILE", "NODE_METRIC", "NODE_RESOURCE", "NODE_SLO", "QUOTA_PROFILE"]

CONFIGURATION: Final = "configuration"
WORKLOAD: Final = "workload"
RATIOS: Final = "ratios"
DEVICES: Final = "devices"
OVERCOMMIT: Final = "overcommit"
HEALTH: Final = "health"
HEALTH_RESET: Final = "health-reset"
RECOMMENDER: Final = "recommender"
REPLACEMENT: Final = "replacement"
AGENT_EVICTION: Final = "agent-eviction"
EVICTION: Final = "eviction"
DISRUPTION_BUDGET: Final = "disruption-budget"
EXPLANATION_EXPIRY: Final = "explanation-expiry"
RESERVATION_COLLECTION: Final = "reservation-collection"
NODE_OBJECTS: Final = "node-objects"
VOLUME_CLAIM: Final = "volume-claim"
DUPLICATE_NAME: Final = "duplicate-name"
DESIRED_STATE: Final = "desired-state"

NODE_POLICIES: Final = (NODE_SLO, NODE_METRIC, RATIOS, DEVICES)
"""Controllers that render a node's policy from its object and the configuration; in this order."""
CONTROLLERS_OF_KIND: Final[Mapping[str, tuple[str, ...]]] = {
    "elasticquotaprofiles": (QUOTA_PROFILE,),
    "recommendations": (RECOMMENDER, REPLACEMENT),
    "scheduleexplanations": (EXPLANATION_EXPIRY,),
    "persistentvolumeclaims": (VOLUME_CLAIM,),
}
"""Plural of a custom resource -> the controllers that reconcile its objects."""
