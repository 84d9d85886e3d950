"""State that the controllers keep between cycles: the configuration in force, and when a periodic controller is due.

None of it is stored. After a restart it is empty, and the controllers make the same decisions.
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
    """The controllers of one process.

    Attributes:
        enabled: Names of the controllers that run, from `enabled.CONTROLLERS`.
        policies: The configuration in force.
        health: Controller of node health.
        quotas: Controller of the root quotas of ElasticQuotaProfiles.
        recommender: Controller of Recommendations.
        budgets: Disruption budgets, which are needed without an API server only.
    """

    enabled: frozenset[str] = frozenset(CONTROLLERS)
    policies: NodePolicies = field(default_factory=NodePolicies)
    health: HealthController = field(default_factory=HealthController)
    quotas: QuotaProfileController = field(default_factory=QuotaProfileController)
    recommender: RecommenderController = field(default_factory=RecommenderController)
    budgets: Budgets = field(default_factory=Budgets)
