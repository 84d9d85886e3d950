"""What the control rounds keep between them: the configuration in force, and when each slower round is due.

Nothing here is a fact: a restart begins with an empty one and decides the same.
"""

from dataclasses import dataclass, field

from koord_manager.domain.configuration.node_policies import NodePolicies
from koord_manager.domain.enabled import CONTROLLERS
from koord_manager.domain.pod_evictions.disruption_budgets import Budgets
from koord_manager.domain.quota_profiles.controller import QuotaProfileController
from koord_manager.domain.recommender.controller import RecommenderController
from koord_manager.domain.retry_backoff import Isolation
from koord_manager.domain.slo_adjust.controller import HealthController


@dataclass(slots=True, kw_only=True)
class Controllers:
    """The controllers of one process.

    enabled     names of those that run (`enabled.CONTROLLERS`)
    isolation   what of them fails at present
    """

    enabled: frozenset[str] = frozenset(CONTROLLERS)
    policies: NodePolicies = field(default_factory=NodePolicies)
    health: HealthController = field(default_factory=HealthController)
    quotas: QuotaProfileController = field(default_factory=QuotaProfileController)
    recommender: RecommenderController = field(default_factory=RecommenderController)
    budgets: Budgets = field(default_factory=Budgets)
    isolation: Isolation = field(default_factory=Isolation)
