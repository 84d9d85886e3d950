"""Names of the manager's controllers: their queues in the work queue and the label `controller` of their metrics."""

from collections.abc import Mapping
from typing import Final

from koord_manager.domain.enabled import COLOCATION_PROFILE, NODE_METRIC, NODE_RESOURCE, NODE_SLO, QUOTA_PROFILE

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
