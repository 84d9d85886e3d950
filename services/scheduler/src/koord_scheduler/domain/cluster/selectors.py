"""Objects that select pods: services and controllers for default spreading, PodDisruptionBudgets for preemption.

Source: scheduler-core spec, 5.6 (system defaults), 6 (step 3)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from koordcore.protocol.objects import LabelSelector, LabelSelectorRequirement, Pod
from koordcore.protocol.scheduling_objects import PodDisruptionBudget
from koordcore.protocol.selectors import Selector

from koord_scheduler.domain.cluster.kinds import compiled

_CONTROLLERS: Final = ("ReplicaSet", "StatefulSet", "ReplicationController", "Deployment")


class OwnerSelectors:
    """Label selectors of services and workload controllers, by namespace, for the default topology spreading."""

    def __init__(self) -> None:
        self.version = 0  # Number that grows with every change
        self._services: dict[str, dict[str, dict[str, str]]] = {}
        self._controllers: dict[tuple[str, str, str], LabelSelector] = {}

    def put_service(self, namespace: str, name: str, selector: dict[str, str]) -> None:
        """An empty selector selects no pod."""
        services = self._services.setdefault(namespace, {})
        if services.get(name) != selector:
            services[name] = selector
            self.version += 1

    def drop_service(self, namespace: str, name: str) -> None:
        services = self._services.get(namespace, {})
        if services.pop(name, None) is not None:
            self.version += 1
        if not services:
            self._services.pop(namespace, None)

    def put_controller(self, kind: str, namespace: str, name: str, selector: LabelSelector | None) -> None:
        """None: the controller is deleted or has no selector."""
        key = (kind, namespace, name)
        if self._controllers.get(key) == selector:
            return
        if selector is None:
            self._controllers.pop(key, None)
        else:
            self._controllers[key] = selector
        self.version += 1

    def selector_of(
        self, namespace: str, labels: Mapping[str, str], owners: Sequence[tuple[str, str]]
    ) -> LabelSelector | None:
        """One selector that requires all selectors of a pod's services and controllers; None without any. `owners`:
        (kind, name). Labels of services and ReplicationControllers replace each other; those of other controllers are
        required besides.
        """
        match_labels: dict[str, str] = {}
        expressions: list[LabelSelectorRequirement] = []
        for selector in self._services.get(namespace, {}).values():
            if selector and all(labels.get(key) == value for key, value in selector.items()):
                match_labels |= selector
        for kind, name in owners:
            owned = self._controllers.get((kind, namespace, name)) if kind in _CONTROLLERS else None
            if owned is not None and kind == "ReplicationController":
                match_labels |= owned.match_labels
            elif owned is not None:
                labelled = [LabelSelectorRequirement(key, "In", [value]) for key, value in owned.match_labels.items()]
                expressions += (*labelled, *owned.match_expressions)
        if not match_labels and not expressions:
            return None
        return LabelSelector(match_labels=match_labels, match_expressions=expressions)


@dataclass(frozen=True, slots=True)
class _Budget:
    selector: Selector
    allowed: int
    disrupted: frozenset[str]


class DisruptionBudgets:
    """The PodDisruptionBudgets by namespace, from which preemption learns which evictions they allow."""

    def __init__(self) -> None:
        self._budgets: dict[str, dict[str, _Budget]] = {}

    def put(self, budget: PodDisruptionBudget) -> None:
        """A budget with an empty or malformed selector protects no pod."""
        meta, selector = budget.metadata, compiled(budget.spec.selector)
        if selector is None or not selector.requirements:
            self.drop(meta.namespace, meta.name)
            return
        status = budget.status
        self._budgets.setdefault(meta.namespace, {})[meta.name] = _Budget(
            selector, status.disruptions_allowed, frozenset(status.disrupted_pods)
        )

    def drop(self, namespace: str, name: str) -> None:
        budgets = self._budgets.get(namespace, {})
        budgets.pop(name, None)
        if not budgets:
            self._budgets.pop(namespace, None)

    def violating(self, victims: Iterable[Pod]) -> list[bool]:
        """Return for each victim whether its eviction exceeds a disruption budget, after the evictions before it. A pod
        that the budget's status lists as disrupted already is not counted again. The budgets do not change.
        """
        left: dict[tuple[str, str], int] = {}
        answers: list[bool] = []
        for pod in victims:
            meta, violates = pod.metadata, False
            for name, budget in self._budgets.get(meta.namespace, {}).items():
                if not budget.selector.matches(meta.labels) or meta.name in budget.disrupted:
                    continue
                remaining = left.get((meta.namespace, name), budget.allowed) - 1
                left[meta.namespace, name] = remaining
                violates |= remaining < 0
            answers.append(violates)
        return answers
