"""State that the controllers keep between cycles: the configuration in force, and when a periodic controller is due.

This state is not stored. After a restart it is empty, and the controllers make the same decisions.
"""

from dataclasses import dataclass, field

from koord_manager.domain.controller_names import CONTROLLERS
from koord_manager.domain.controllers.configuration import NodePolicies
from koord_manager.domain.controllers.quota_profiles import QuotaProfileController
from koord_manager.domain.controllers.recommender.controller import RecommenderController
from koord_manager.domain.controllers.slo_adjust.controller import HealthController
from koord_manager.domain.controllers.standalone.evictions import Budgets


@dataclass(slots=True, kw_only=True)
class Controllers:
    enabled: frozenset[str] = frozenset(
        CONTROLLERS
    )  # Names of the controllers that run, from `controller_names.CONTROLLERS`
    policies: NodePolicies = field(default_factory=NodePolicies)
    health: HealthController = field(default_factory=HealthController)
    # Keeps the root quotas of ElasticQuotaProfiles up to date.
    quotas: QuotaProfileController = field(default_factory=QuotaProfileController)
    recommender: RecommenderController = field(default_factory=RecommenderController)
    # PodDisruptionBudgets with the evictions that they allow; used only without an API server.
    budgets: Budgets = field(default_factory=Budgets)
