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
    """Open a node for new pods, or close it (cordon)."""

    node: str
    schedulable: bool
    plugin: str


@dataclass(frozen=True, slots=True)
class SetDeletionCost:
    """Set the deletion cost of a pod in the annotation of Kubernetes."""

    pod: str  # Uid of the pod
    cost: int  # The cost, an int32. Pods with a lower cost are deleted first when their workload shrinks.
    profile: str
    plugin: str


@dataclass(frozen=True, slots=True)
class LookAtDrains:
    """Look at all drains now, and not only when the next look is due."""


Proposal: TypeAlias = SetSchedulable | SetDeletionCost | LookAtDrains


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    """Pods that leave their nodes, all or none of them, so that a waiting gang finds room."""

    id: str  # Id of the plan, a uuid
    gang: str  # The gang as "namespace/name"; the pod if a single pod waits
    members: tuple[PodView, ...]
    pods: tuple[PodView, ...]  # The pods that move, in the order in which they are placed
    nodes: frozenset[str]  # Nodes on which room is made. No moved pod may land there.
    gpus: int  # Number of whole GPUs that the members need together
    fragment_before: float  # GPU milli of all nodes that typical pods cannot use, before the plan
    fragment_after: float  # GPU milli that typical pods cannot use after the plan, with the members placed

    @property
    def inputs(self) -> Inputs:
        return plan_inputs(
            gpus=self.gpus,
            moves=len(self.pods),
            fragment_before=self.fragment_before,
            fragment_after=self.fragment_after,
        )

    @property
    def reason(self) -> str:
        return (
            f"make room for {self.gang}, which waits for {self.gpus} whole GPUs: {len(self.pods)} pods move,"
            f" fragments {self.fragment_before / 1000:.1f} -> {self.fragment_after / 1000:.1f} GPUs"
        )


class Point(StrEnum):
    DESCHEDULE = "deschedule"
    BALANCE = "balance"
    EVICT = "evict"
    FILTER = "filter"


class Evictor(Protocol):
    """The eviction path of one profile in one round, as plugins use it (descheduler spec, 5.1)."""

    @property
    def is_dry_run(self) -> bool:
        """Whether evictions are counted and not carried out."""
        ...

    @property
    def is_exhausted(self) -> bool:
        """Whether the total limit has refused an eviction, so that it refuses all further ones of this round."""
        ...

    def refusals(self, pod: PodView) -> tuple[str, ...]:
        """Codes of all reasons why the filter plugins refuse a pod; empty if it is evictable."""
        ...

    def pre_eviction_refusals(self, pod: PodView) -> tuple[str, ...]:
        """Codes of all reasons why the filter plugins refuse a pod just before its eviction."""
        ...

    def numbers(self, pod: PodView, codes: Collection[str]) -> Inputs:
        """Counts and limits for which filter plugins refuse a pod, by code. Codes without numbers are left out."""
        ...

    def evict(self, pod: PodView, reason: str, plugin: str, inputs: Inputs) -> bool:
        """Evict a pod if the limits allow it. Return whether it is evicted, or would be evicted without dry run.

        `inputs`: name of a number -> the number and its limit, because of which the plugin chose the pod.
        """
        ...

    def try_evict(self, pod: PodView, reason: str, plugin: str, inputs: Inputs) -> None: ...

    def evict_together(self, plan: MovePlan, plugin: str) -> PodView | None:
        """Evict all pods of a plan, or none. Return the first pod that is refused; None if all are evicted."""
        ...

    def try_evict_together(self, plan: MovePlan, plugin: str) -> PodView | None:
        """Record that a plugin in dry run would evict all pods of a plan.

        Return the first pod if the evict plugin takes no plans.
        """
        ...


NumbersOf: TypeAlias = Callable[[PodView, Collection[str]], Inputs]
"""Returns the counts and limits of some reasons against a pod, see `Evictor.numbers`."""
NoteRefusal: TypeAlias = Callable[[str, str, PodView, Sequence[str], NumbersOf], None]
"""Takes the names of a profile and of its plugin, a pod for which it asked, why the filter plugins refuse it, and a
function that knows the numbers of these reasons."""


def unnoted(profile: str, plugin: str, pod: PodView, codes: Sequence[str], numbers: NumbersOf) -> None:
    """The default for callers that do not count refusals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRun:
    profile: str
    plugin: str  # Name of the plugin. It becomes the trigger of its evictions.
    cluster: ClusterView
    nodes: Sequence[NodeView]
    # Whether the configuration is in dry run: evictions are counted but not carried out, and nothing else changes.
    is_dry_run: bool
    evictor: Evictor
    proposals: list[Proposal]  # Other changes that plugins have proposed in this round, in order
    # Classes of nodes (under- or overused) by plugins in this round, for users.
    classified: list[ClassifiedNodes] = field(default_factory=list[ClassifiedNodes])
    refused: NoteRefusal = unnoted  # Called for each pod that the filter plugins refuse

    def filter(self, pod: PodView) -> bool:
        """Whether all filter plugins of the profile accept the eviction of a pod. `refused` is told if not."""
        codes = self.evictor.refusals(pod)
        if codes:
            self.refused(self.profile, self.plugin, pod, codes, self.evictor.numbers)
        return not codes

    def pre_eviction_filter(self, pod: PodView) -> bool:
        """Whether all filter plugins accept a pod just before its eviction. `refused` is told if not.

        The plugin calls this after `filter`, for pods that it is about to evict.
        """
        codes = self.evictor.pre_eviction_refusals(pod)
        if codes:
            self.refused(self.profile, self.plugin, pod, codes, self.evictor.numbers)
        return not codes

    @property
    def is_exhausted(self) -> bool:
        """The plugin may stop to look for pods then. See `Evictor.is_exhausted`."""
        return self.evictor.is_exhausted

    def evict(self, pod: PodView, reason: str, inputs: Inputs | None = None) -> bool:
        """`reason`, `inputs`: why the plugin chose the pod, as a sentence and as numbers. See `Evictor.evict`."""
        return self.evictor.evict(pod, reason, self.plugin, inputs or {})

    def try_evict(self, pod: PodView, reason: str, inputs: Inputs | None = None) -> None:
        self.evictor.try_evict(pod, reason, self.plugin, inputs or {})

    def evict_together(self, plan: MovePlan) -> PodView | None:
        return self.evictor.evict_together(plan, self.plugin)

    def try_evict_together(self, plan: MovePlan) -> PodView | None:
        return self.evictor.try_evict_together(plan, self.plugin)

    def propose(self, proposal: Proposal) -> None:
        """Propose a change other than an eviction, such as closing a node. No-op in a dry run."""
        if not self.is_dry_run:
            self.proposals.append(proposal)


class Plugin(Protocol):
    @property
    def name(self) -> str: ...


@runtime_checkable
class DeschedulePlugin(Plugin, Protocol):
    """A plugin that finds single pods that should not stay on their nodes, such as pods with too many restarts."""

    def deschedule(self, run: PluginRun) -> None:
        """Raises PluginFailed: the plugin could not decide. Its siblings still run."""
        ...


@runtime_checkable
class BalancePlugin(Plugin, Protocol):
    """A plugin that finds a better distribution of pods over nodes."""

    def balance(self, run: PluginRun) -> None:
        """Raises PluginFailed: the plugin could not decide. Its siblings still run."""
        ...


@runtime_checkable
class FilterPlugin(Plugin, Protocol):
    def refusals(self, pod: PodView, cluster: ClusterView) -> tuple[str, ...]:
        """Codes of all reasons why a pod must not be evicted; empty if it may be."""
        ...

    def pre_eviction_refusals(self, pod: PodView, cluster: ClusterView) -> tuple[str, ...]:
        """Codes of all reasons against a pod that are checked just before its eviction."""
        ...


@runtime_checkable
class CountingPlugin(Plugin, Protocol):
    """A filter or evict plugin that compares numbers of a pod with limits."""

    def numbers(self, pod: PodView, cluster: ClusterView) -> Inputs:
        """Counts and limits of the reasons that there can be against a pod, by code."""
        ...


@runtime_checkable
class EvictPlugin(Plugin, Protocol):
    def evict(self, pod: PodView, reason: str, plugin: str, cluster: ClusterView) -> bool:
        """Return False if the eviction is refused or fails. `reason`, `plugin`: who asks for it, and why."""
        ...


@runtime_checkable
class DryRunEvictPlugin(Plugin, Protocol):
    """An evict plugin that can be set to dry run by its own arguments."""

    @property
    def is_dry_run(self) -> bool: ...


@runtime_checkable
class LimitingEvictPlugin(EvictPlugin, Protocol):
    """An evict plugin with a limit of its own, which no filter knows."""

    def shortage(self, pod: PodView, cluster: ClusterView) -> Inputs:
        """The numbers of this limit by its code if `evict` refuses the pod because of it; else empty."""
        ...


@runtime_checkable
class PlanEvictPlugin(EvictPlugin, Protocol):
    """An evict plugin that can move the pods of a plan all together or not at all."""

    def evict_for(self, plan: MovePlan, pod: PodView, plugin: str, cluster: ClusterView) -> bool:
        """Ask for the move of one pod of a plan. Return False if it is refused."""
        ...

    def withdraw(self, plan: MovePlan) -> None:
        """Remove the requests for a plan in this round, because the plan is given up."""
        ...


class PluginFailed(Exception):
    """The plugin could not decide in this round. The message gives the reason."""
