"""Extension points of the descheduler, the inputs that a plugin gets when it runs, and what it can ask for.

A plugin decides from its arguments, the view of the cluster and the budgets of the round. It reads no clock and changes
nothing itself: it requests evictions by `PluginRun.evict`, and proposes other changes by `PluginRun.propose`.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeAlias, runtime_checkable

from koordcore.events.descheduling import ClassifiedNodes, Inputs, plan_inputs

from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.nodes import NodeView
from koord_descheduler.domain.view.pods import PodView


@dataclass(frozen=True, slots=True)
class SetSchedulable:
    """Open a node for new pods, or close it (cordon).

    Attributes:
        node: Name of the node.
        schedulable: Whether the node takes new pods.
        plugin: Name of the plugin that proposes it.
    """

    node: str
    schedulable: bool
    plugin: str


@dataclass(frozen=True, slots=True)
class SetDeletionCost:
    """Set the deletion cost of a pod in the annotation of Kubernetes.

    Attributes:
        pod: Uid of the pod.
        cost: The cost, an int32. Pods with a lower cost are deleted first when their workload shrinks.
        profile: Name of the profile of the plugin.
        plugin: Name of the plugin that proposes it.
    """

    pod: str
    cost: int
    profile: str
    plugin: str


@dataclass(frozen=True, slots=True)
class LookAtDrains:
    """Look at all drains now, and not only when the next look is due."""


Proposal: TypeAlias = SetSchedulable | SetDeletionCost | LookAtDrains


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    """Pods that leave their nodes, all or none of them, so that a waiting gang finds room.

    Attributes:
        id: Id of the plan, a uuid.
        gang: The gang as "namespace/name"; the pod if a single pod waits.
        members: The waiting pods.
        pods: The pods that move, in the order in which they are placed.
        nodes: Nodes on which room is made. No moved pod may land there.
        gpus: Number of whole GPUs that the members need together.
        fragment_before: GPU milli of all nodes that typical pods cannot use, before the plan.
        fragment_after: GPU milli that typical pods cannot use after the plan, with the members placed.
    """

    id: str
    gang: str
    members: tuple[PodView, ...]
    pods: tuple[PodView, ...]
    nodes: frozenset[str]
    gpus: int
    fragment_before: float
    fragment_after: float

    @property
    def inputs(self) -> Inputs:
        """Return the numbers of the plan: its GPUs and moves, and the fragments after and before it."""
        return plan_inputs(
            gpus=self.gpus,
            moves=len(self.pods),
            fragment_before=self.fragment_before,
            fragment_after=self.fragment_after,
        )

    @property
    def reason(self) -> str:
        """Return why the pods move, as a sentence."""
        return (
            f"make room for {self.gang}, which waits for {self.gpus} whole GPUs: {len(self.pods)} pods move,"
            f" fragments {self.fragment_before / 1000:.1f} -> {self.fragment_after / 1000:.1f} GPUs"
        )


class Point(StrEnum):
    """Extension points by their names in a configuration."""

    DESCHEDULE = "deschedule"
    BALANCE = "balance"
    EVICT = "evict"
    FILTER = "filter"


class Evictor(Protocol):
    """The eviction path of one profile in one round, as plugins use it.

    Source:
        descheduler spec, 5.1
    """

    @property
    def is_dry_run(self) -> bool:
        """Return whether evictions are counted and not carried out."""
        ...

    @property
    def is_exhausted(self) -> bool:
        """Return whether the total limit has refused an eviction, so that it refuses all further ones of this round."""
        ...

    def refusals(self, pod: PodView) -> tuple[str, ...]:
        """Return the codes of all reasons why the filter plugins refuse a pod; empty if it is evictable."""
        ...

    def pre_eviction_refusals(self, pod: PodView) -> tuple[str, ...]:
        """Return the codes of all reasons why the filter plugins refuse a pod just before its eviction."""
        ...

    def numbers(self, pod: PodView, codes: Collection[str]) -> Inputs:
        """Return the counts and limits for which filter plugins refuse a pod, by code.

        Args:
            pod: The refused pod.
            codes: Codes of the reasons. Those without numbers are left out.
        """
        ...

    def evict(self, pod: PodView, reason: str, plugin: str, inputs: Inputs) -> bool:
        """Evict a pod if the limits allow it. Return whether it is evicted, or would be evicted without dry run.

        Args:
            pod: The pod.
            reason: Why the plugin chose it.
            plugin: Name of the plugin that asks.
            inputs: Name of a number -> the number and its limit, because of which the plugin chose the pod.
        """
        ...

    def try_evict(self, pod: PodView, reason: str, plugin: str, inputs: Inputs) -> None:
        """Record that a plugin in dry run would evict a pod."""
        ...

    def evict_together(self, plan: MovePlan, plugin: str) -> PodView | None:
        """Evict all pods of a plan, or none. Return the first pod that is refused; None if all are evicted."""
        ...

    def try_evict_together(self, plan: MovePlan, plugin: str) -> PodView | None:
        """Record that a plugin in dry run would evict all pods of a plan.

        Return the first pod if the evict plugin cannot carry out plans, so that none would be evicted; otherwise None.
        """
        ...


NumbersOf: TypeAlias = Callable[[PodView, Collection[str]], Inputs]
"""Returns the counts and limits of some reasons against a pod, see `Evictor.numbers`."""
NoteRefusal: TypeAlias = Callable[[str, str, PodView, Sequence[str], NumbersOf], None]
"""Takes the names of a profile and of its plugin, a pod for which it asked, why the filter plugins refuse it, and a
function that knows the numbers of these reasons."""


def unnoted(profile: str, plugin: str, pod: PodView, codes: Sequence[str], numbers: NumbersOf) -> None:
    """Ignore a refusal: the default for callers that do not count refusals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRun:
    """The inputs of a deschedule or balance plugin in one round, and its access to evictions.

    Attributes:
        profile: Name of the plugin's profile.
        plugin: Name of the plugin. It becomes the trigger of its evictions.
        cluster: The cluster at the start of the round.
        nodes: Nodes of the plugin's profile.
        is_dry_run: Whether the configuration is in dry run: evictions are counted but not carried out, and nothing else
            changes.
        evictor: Eviction path of the profile.
        proposals: Other changes that plugins have proposed in this round, in order.
        classified: Classes of nodes (under- or overused) by plugins in this round, for users.
        refused: Called for each pod that the filter plugins refuse.
    """

    profile: str
    plugin: str
    cluster: ClusterView
    nodes: Sequence[NodeView]
    is_dry_run: bool
    evictor: Evictor
    proposals: list[Proposal]
    classified: list[ClassifiedNodes] = field(default_factory=list[ClassifiedNodes])
    refused: NoteRefusal = unnoted

    def filter(self, pod: PodView) -> bool:
        """Return whether all filter plugins of the profile accept the eviction of a pod. `refused` is told if not."""
        codes = self.evictor.refusals(pod)
        if codes:
            self.refused(self.profile, self.plugin, pod, codes, self.evictor.numbers)
        return not codes

    def pre_eviction_filter(self, pod: PodView) -> bool:
        """Return whether all filter plugins accept a pod just before its eviction. `refused` is told if not.

        The plugin calls this after `filter`, for pods that it is about to evict.
        """
        codes = self.evictor.pre_eviction_refusals(pod)
        if codes:
            self.refused(self.profile, self.plugin, pod, codes, self.evictor.numbers)
        return not codes

    @property
    def is_exhausted(self) -> bool:
        """Return whether the total limit has refused an eviction. Then the plugin may stop to look for pods."""
        return self.evictor.is_exhausted

    def evict(self, pod: PodView, reason: str, inputs: Inputs | None = None) -> bool:
        """Ask for the eviction of a pod. Return whether it is evicted, or would be in a dry run.

        Args:
            pod: The pod.
            reason: Why the plugin chose it.
            inputs: The numbers for which it chose it; None if there are none.
        """
        return self.evictor.evict(pod, reason, self.plugin, inputs or {})

    def try_evict(self, pod: PodView, reason: str, inputs: Inputs | None = None) -> None:
        """Record that the plugin, which is in dry run, would evict a pod."""
        self.evictor.try_evict(pod, reason, self.plugin, inputs or {})

    def evict_together(self, plan: MovePlan) -> PodView | None:
        """Ask for the eviction of all pods of a plan, or of none.

        Return the first pod that is refused; None if all are evicted, or would be in a dry run.
        """
        return self.evictor.evict_together(plan, self.plugin)

    def try_evict_together(self, plan: MovePlan) -> PodView | None:
        """Record that the plugin, which is in dry run, would evict all pods of a plan.

        Return the first pod if the evict plugin cannot carry out plans, so that none would be evicted; otherwise None.
        """
        return self.evictor.try_evict_together(plan, self.plugin)

    def propose(self, proposal: Proposal) -> None:
        """Propose a change other than an eviction, such as closing a node. No-op in a dry run."""
        if not self.is_dry_run:
            self.proposals.append(proposal)


class Plugin(Protocol):
    """The property that every plugin has: its name."""

    @property
    def name(self) -> str:
        """Return the name in configuration, records and metrics."""
        ...


@runtime_checkable
class DeschedulePlugin(Plugin, Protocol):
    """A plugin that finds single pods that should not stay on their nodes, such as pods with too many restarts."""

    def deschedule(self, run: PluginRun) -> None:
        """Evict pods that violate a rule.

        Raises:
            PluginFailed: The plugin could not decide. Its siblings still run.
        """
        ...


@runtime_checkable
class BalancePlugin(Plugin, Protocol):
    """A plugin that finds a better distribution of pods over nodes."""

    def balance(self, run: PluginRun) -> None:
        """Evict pods whose move makes the distribution better.

        Raises:
            PluginFailed: The plugin could not decide. Its siblings still run.
        """
        ...


@runtime_checkable
class FilterPlugin(Plugin, Protocol):
    """A plugin that decides which pods may be evicted."""

    def refusals(self, pod: PodView, cluster: ClusterView) -> tuple[str, ...]:
        """Return the codes of all reasons why a pod must not be evicted; empty if it may be."""
        ...

    def pre_eviction_refusals(self, pod: PodView, cluster: ClusterView) -> tuple[str, ...]:
        """Return the codes of all reasons against a pod that are checked just before its eviction."""
        ...


@runtime_checkable
class CountingPlugin(Plugin, Protocol):
    """A filter or evict plugin that compares numbers of a pod with limits."""

    def numbers(self, pod: PodView, cluster: ClusterView) -> Inputs:
        """Return the counts and limits of the reasons that there can be against a pod, by code."""
        ...


@runtime_checkable
class EvictPlugin(Plugin, Protocol):
    """A plugin that carries out evictions."""

    def evict(self, pod: PodView, reason: str, plugin: str, cluster: ClusterView) -> bool:
        """Ask for the eviction of a pod. Return False if it is refused or fails.

        Args:
            pod: The pod.
            reason: Reason of the plugin that asks.
            plugin: Name of the plugin that asks.
            cluster: The cluster at the start of the round.
        """
        ...


@runtime_checkable
class DryRunEvictPlugin(Plugin, Protocol):
    """An evict plugin that can be set to dry run by its own arguments."""

    @property
    def is_dry_run(self) -> bool:
        """Return whether evictions are counted and not carried out."""
        ...


@runtime_checkable
class LimitingEvictPlugin(EvictPlugin, Protocol):
    """An evict plugin with a limit of its own, which no filter knows."""

    def shortage(self, pod: PodView, cluster: ClusterView) -> Inputs:
        """Return the numbers of this limit by its code if `evict` refuses the pod because of it; else empty."""
        ...


@runtime_checkable
class PlanEvictPlugin(EvictPlugin, Protocol):
    """An evict plugin that can move the pods of a plan all together or not at all."""

    def evict_for(self, plan: MovePlan, pod: PodView, plugin: str, cluster: ClusterView) -> bool:
        """Ask for the move of one pod of a plan. Return False if it is refused.

        Args:
            plan: The plan.
            pod: One of its pods.
            plugin: Name of the plugin that asks.
            cluster: The cluster at the start of the round.
        """
        ...

    def withdraw(self, plan: MovePlan) -> None:
        """Remove the requests that were made for a plan in this round, because the plan is given up."""
        ...


class PluginFailed(Exception):
    """Raised if a plugin could not decide in this round. The message gives the reason."""
