"""One round: which nodes take part, and which plugins run in which order.

Source:
    descheduler spec, 4
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from koordcore.events.descheduling import ClassifiedNodes
from koordcore.protocol.selectors import EVERYTHING, Selector
from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.framework.eviction import Attempt, EvictionLimiter, EvictionPath
from koord_descheduler.domain.framework.plugin import (
    BalancePlugin,
    DeschedulePlugin,
    DryRunEvictPlugin,
    EvictPlugin,
    FilterPlugin,
    NoteRefusal,
    Plugin,
    PluginFailed,
    PluginRun,
    Proposal,
    unnoted,
)
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.nodes import NodeView


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    name: str
    nodes: Selector = EVERYTHING
    deschedule: Sequence[DeschedulePlugin] = ()
    balance: Sequence[BalancePlugin] = ()
    filters: Sequence[FilterPlugin] = ()  # Filter plugins; all must accept a pod
    evict: EvictPlugin
    # Whether it moves a pod only if that makes the cluster better. Its plugins then see the usage as of this moment, as
    # far as pods have moved since the last reports.
    proves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginFault:
    profile: str
    plugin: str
    text: str


@dataclass(slots=True)
class RoundOutcome:
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    proposals: list[Proposal] = field(default_factory=list[Proposal])
    classified: list[ClassifiedNodes] = field(default_factory=list[ClassifiedNodes])
    # Errors of plugins. If a profile has any, the round ended after it.
    faults: list[PluginFault] = field(default_factory=list[PluginFault])


def round_nodes(cluster: ClusterView, selector: Selector) -> list[NodeView]:
    """Ready nodes that match the selector of the configuration, even unschedulable ones (descheduler spec, 4 (1), (2)).

    Raises:
        InvalidInput: There are fewer than two such nodes, so that no pod can move.
    """
    nodes = [node for node in cluster.nodes if node.is_ready and selector.matches(node.labels)]
    if len(nodes) <= 1:
        raise InvalidInput("a cluster of at least two ready nodes (the cluster size is 0 or 1)", len(nodes), "nodes")
    return nodes


def profile_nodes(nodes: Iterable[NodeView], selector: Selector) -> list[NodeView]:
    return [node for node in nodes if selector.matches(node.labels)]


def run_round(
    profiles: Sequence[Profile],
    cluster: ClusterView,
    limiter: EvictionLimiter,
    *,
    nodes: Selector = EVERYTHING,
    is_dry_run: bool = False,
    timed: Callable[[str], AbstractContextManager[object]] = nullcontext,
    refused: NoteRefusal = unnoted,
) -> RoundOutcome:
    """Run the deschedule plugins of all profiles, then the balance plugins of all profiles.

    An error of a plugin does not stop its siblings. After the profile, the round ends.

    Args:
        limiter: Limits on evictions; its counts are reset first.
        timed: Returns, for the name of a plugin, a context manager in which the plugin runs, to measure it.
        refused: Is told of each pod that filter plugins refuse.

    Raises:
        InvalidInput: There is at most one node. The counts of the limiter are not reset.
    """
    selected = round_nodes(cluster, nodes)
    limiter.reset()
    outcome = RoundOutcome()
    evicted = set(cluster.migrating)

    def run(profile: Profile, plugins: Iterable[tuple[Plugin, Callable[[PluginRun], None]]]) -> None:
        seen = cluster.caught_up if profile.proves else cluster
        path = EvictionPath(
            profile=profile.name,
            cluster=seen,
            filters=profile.filters,
            evict_plugin=profile.evict,
            limiter=limiter,
            is_dry_run=is_dry_run or (isinstance(profile.evict, DryRunEvictPlugin) and profile.evict.is_dry_run),
            attempts=outcome.attempts,
            evicted=evicted,
        )
        own_nodes = profile_nodes(selected, profile.nodes)
        for plugin, call in plugins:
            given = PluginRun(
                profile=profile.name,
                plugin=plugin.name,
                cluster=seen,
                nodes=own_nodes,
                is_dry_run=is_dry_run,
                evictor=path,
                proposals=outcome.proposals,
                classified=outcome.classified,
                refused=refused,
            )
            with timed(plugin.name):
                fault = _fault(call, given)
            if fault:
                outcome.faults.append(PluginFault(profile=profile.name, plugin=plugin.name, text=fault))

    for profile in profiles:
        run(profile, [(plugin, plugin.deschedule) for plugin in profile.deschedule])
        if outcome.faults:
            return outcome
    for profile in profiles:
        run(profile, [(plugin, plugin.balance) for plugin in profile.balance])
        if outcome.faults:
            return outcome
    return outcome


def _fault(call: Callable[[PluginRun], None], given: PluginRun) -> str:
    """The error of a plugin as text; "" if it had none. Any exception is an error of the plugin."""
    try:
        call(given)
    except PluginFailed as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - an installed plugin may raise anything; it must not end the service
        return f"{type(error).__name__}: {error}"
    return ""
