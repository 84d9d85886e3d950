"""Settings of drains, from the configuration of the MigrationController.

Source:
    descheduler spec, 11.2 (5), 11.3
"""

from collections.abc import Callable
from dataclasses import dataclass

from koord_descheduler.domain.config.document import DeschedulerConfiguration
from koord_descheduler.domain.config.effective import profile_args
from koord_descheduler.domain.framework.registry import Registry, SharedState
from koord_descheduler.domain.jobs.arguments import MigrationControllerArgs
from koord_descheduler.domain.jobs.plugin import NAME, MigrationController
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.pods import PodView

PodRule = Callable[[PodView, ClusterView], tuple[str, ...]]
"""Returns why a pod must not be migrated; empty if it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPolicy:
    """Settings of drains.

    Attributes:
        refusals: Returns the reasons why a pod must not be migrated, by base filter and expected replicas.
        scheduler_names: Schedulers that know Reservations.
        job_ttl: Seconds after which a migration job is given up; 0: never.
    """

    refusals: PodRule
    scheduler_names: frozenset[str]
    job_ttl: float


def drain_policy(configuration: DeschedulerConfiguration, registry: Registry, shared: SharedState) -> DrainPolicy:
    """Return the policy of drains: that of the first profile that evicts by migration jobs, else the default one.

    Args:
        configuration: The effective configuration.
        registry: Plugins that it can name.
        shared: State that all plugins share; its PriorityClasses are read.

    Raises:
        InvalidInput: The arguments of the MigrationController are invalid.
    """
    args = next(
        (
            profile_args(profile, NAME, registry)
            for profile in configuration.profiles
            if profile.plugins.evict.enabled[0].name == NAME
        ),
        MigrationControllerArgs(),
    )
    controller = MigrationController(args, shared)
    return DrainPolicy(
        refusals=controller.lasting_refusals,
        scheduler_names=frozenset(args.scheduler_names),
        job_ttl=args.default_job_ttl,
    )
