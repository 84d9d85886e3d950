"""What a round asks for, as facts: evictions of pods. And what this version cannot carry out, refused at start.

Source:
    descheduler spec, 5.1, 6.3
"""

from collections.abc import Iterator
from typing import Final

from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.objects.gateway import PodEvictionRequested
from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.arguments.migration_controller import EVICT_DIRECTLY
from koord_descheduler.domain.config.document import DeschedulerConfiguration
from koord_descheduler.domain.config.effective import profile_args
from koord_descheduler.domain.framework.eviction import Attempt, Result
from koord_descheduler.domain.framework.plugin import Point
from koord_descheduler.domain.framework.registry import Registry
from koord_descheduler.domain.plugins.evictors import migration_controller
from koord_descheduler.domain.view.pods import PodView

INITIATOR: Final = "descheduler"
REASON: Final = "Descheduled"
LONGEST_MESSAGE: Final = 1024


def eviction_draft(attempt: Attempt, last_seq: int) -> Draft:
    """Return the fact that asks the gateway to evict a pod.

    Args:
        attempt: A successful attempt of the round.
        last_seq: Sequence of the last event of the pod's eviction; 0 if there was none.
    """
    pod = attempt.pod
    event = PodEvictionRequested(
        namespace=pod.namespace,
        name=pod.name,
        node=pod.node,
        initiator=INITIATOR,
        method="evict",
        reason=REASON,
        message=f"{attempt.reason} ({attempt.plugin})"[:LONGEST_MESSAGE],
        trigger=attempt.plugin,
    )
    return Draft(eviction_ref(pod), event, last_seq)


def eviction_ref(pod: PodView) -> AggregateRef:
    """Return the aggregate of the eviction of a pod."""
    return AggregateRef("eviction", pod.uid)


def is_to_carry_out(attempt: Attempt) -> bool:
    """Return whether a pod is to be evicted because of an attempt: it succeeded, and it was not a dry run."""
    return attempt.result is Result.SUCCESS


def migrating_profiles(configuration: DeschedulerConfiguration) -> frozenset[str]:
    """Return the profiles whose pods leave by migration jobs. The other profiles evict pods directly."""
    return frozenset(
        profile.name
        for profile in configuration.profiles
        if profile.plugins.evict.enabled[0].name == migration_controller.NAME
    )


def unsupported(configuration: DeschedulerConfiguration, registry: Registry) -> Iterator[InvalidInput]:
    """Yield what a valid configuration asks for and this version cannot carry out yet.

    A configuration without deschedule and balance plugins asks for nothing.
    """
    for index, profile in enumerate(configuration.profiles):
        path = f"profiles[{index}].pluginConfig"
        working = [each.name for point in _WORKING for each in profile.plugins.at(point).enabled]
        if not working:
            continue
        if "ScaleDownBinPack" in working:
            args = profile_args(profile, "ScaleDownBinPack", registry)
            if args.strategy != EVICT_DIRECTLY:
                rule = f"{EVICT_DIRECTLY}: the service cannot annotate pods yet"
                yield InvalidInput(rule, str(args.strategy), f"{path}[ScaleDownBinPack].args.strategy")
        if "CustomPriority" in working and profile_args(profile, "CustomPriority", registry).auto_cordon:
            rule = "false: the service cannot close nodes yet"
            yield InvalidInput(rule, True, f"{path}[CustomPriority].args.autoCordon")


_WORKING: Final = (Point.DESCHEDULE, Point.BALANCE)
