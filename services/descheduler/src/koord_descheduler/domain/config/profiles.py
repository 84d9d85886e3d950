"""Make the plugins of a configuration.

Source:
    descheduler spec, 3.3 (stage framework), 4
"""

from dataclasses import dataclass
from typing import TypeVar

from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.config.arguments import selector_or_all
from koord_descheduler.domain.config.document import DeschedulerConfiguration, ProfileConfiguration
from koord_descheduler.domain.config.effective import profile_args
from koord_descheduler.domain.framework.eviction import EvictionLimits
from koord_descheduler.domain.framework.plugin import (
    BalancePlugin,
    DeschedulePlugin,
    EvictPlugin,
    FilterPlugin,
    Plugin,
    Point,
)
from koord_descheduler.domain.framework.registry import Registry, SharedState
from koord_descheduler.domain.framework.round import Profile

P = TypeVar("P", bound=Plugin)


@dataclass(frozen=True, slots=True)
class MadeProfiles:
    profiles: list[Profile]  # The profiles with their plugins, in the order of the file
    problems: list[str]  # Why the other profiles are left out, one sentence per profile


def eviction_limits(configuration: DeschedulerConfiguration) -> EvictionLimits:
    return EvictionLimits(
        per_node=configuration.max_no_of_pods_to_evict_per_node,
        per_namespace=configuration.max_no_of_pods_to_evict_per_namespace,
        total=configuration.max_no_of_pods_to_evict_total,
    )


def proving_profiles(configuration: DeschedulerConfiguration) -> frozenset[str]:
    """Names of the profiles that move a pod only if that makes the cluster better."""
    return frozenset(profile.name for profile in configuration.profiles if profile.prove)


def build_profiles(configuration: DeschedulerConfiguration, registry: Registry, shared: SharedState) -> list[Profile]:
    """The profiles of a valid configuration, in the order of the file.

    Raises:
        InvalidInput: A plugin cannot be made, for example because a PriorityClass does not exist.
    """
    return [_profile(configuration, index, registry, shared) for index in range(len(configuration.profiles))]


def makeable_profiles(configuration: DeschedulerConfiguration, registry: Registry, shared: SharedState) -> MadeProfiles:
    """The profiles that can be made now.

    A profile cannot be made, for example, if its priority threshold names a PriorityClass that does not exist: which
    pods it may evict is unknown then.
    """
    made = MadeProfiles([], [])
    for index in range(len(configuration.profiles)):
        try:
            made.profiles.append(_profile(configuration, index, registry, shared))
        except InvalidInput as error:
            made.problems.append(str(error))
    return made


def _profile(configuration: DeschedulerConfiguration, index: int, registry: Registry, shared: SharedState) -> Profile:
    try:
        return _made(configuration.profiles[index], registry, shared)
    except InvalidInput as error:
        raise error.at(f"profiles[{index}]") from error


def _made(configuration: ProfileConfiguration, registry: Registry, shared: SharedState) -> Profile:
    made: dict[str, Plugin] = {}

    def plugins(point: Point, kind: type[P]) -> list[P]:
        found: list[P] = []
        for each in configuration.plugins.at(point).enabled:
            if each.name not in made:
                try:
                    made[each.name] = registry[each.name].make(profile_args(configuration, each.name, registry), shared)
                except InvalidInput as error:
                    raise error.at(f"pluginConfig[{each.name}].args") from error
            plugin = made[each.name]
            if not isinstance(plugin, kind):
                raise InvalidInput(f"a plugin with the methods of the point {point}", type(plugin).__name__, each.name)
            found.append(plugin)
        return found

    return Profile(
        name=configuration.name,
        nodes=selector_or_all(configuration.node_selector),
        deschedule=plugins(Point.DESCHEDULE, DeschedulePlugin),
        balance=plugins(Point.BALANCE, BalancePlugin),
        filters=plugins(Point.FILTER, FilterPlugin),
        evict=plugins(Point.EVICT, EvictPlugin)[0],
        proves=bool(configuration.prove),
    )
