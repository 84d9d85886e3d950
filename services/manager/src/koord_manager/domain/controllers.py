"""State that the controllers keep between cycles: the configuration in force, and when a periodic controller is due.

This state is not stored. After a restart it is empty, and the controllers make the same decisions.
"""

from dataclasses import dataclass, field

from koord_manager.domain.configuration.node_policies import NodePolicies
from koord_manager.domain.enabled import CONTROLLERS
from koord_manager.domain.pod_evictions.disruption_budgets import Budgets
from koord_manager.domain.quota_profiles.controller import QuotaProfileController
from koord_manager.domain.recommender.controller import RecommenderController
from koord_manager.domain.slo_adjust.controller import HealthController


@dataclass(slots=True, kw_only=True)
class Controllers:
    """The controllers of one process, with the state that they keep between cycles.

    Attributes:
        enabled: Names of the controllers that run, from `enabled.CONTROLLERS`.
        policies: The slo-controller-config in force.
        health: Assesses the health of nodes.
        quotas: Keeps the root quotas of ElasticQuotaProfiles up to date.
        recommender: Computes Recommendations.
        budgets: PodDisruptionBudgets with the evictions that they allow; used only without an API server.
    """

    enabled: frozenset[str] = frozenset(CONTROLLERS)
    policies: NodePolicies = field(default_factory=NodePolicies)
    health: HealthController = field(default_factory=HealthController)
    quotas: QuotaProfileController = field(default_factory=QuotaProfileController)
    recommender: RecommenderController = field(default_factory=RecommenderController)
    budgets: Budgets = field(default_factory=Budgets)
