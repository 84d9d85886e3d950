"""PodDisruptionBudgets for preemption.

Source: scheduler-core spec, 6, step 3
"""

from collections.abc import Iterable
from dataclasses import dataclass

from koordcore.protocol.objects import Pod
from koordcore.protocol.scheduling_objects import PodDisruptionBudget
from koordcore.protocol.selectors import Selector

from koord_scheduler.domain.pods.kinds import compiled


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
        """Add or change a budget. A budget with an empty or malformed selector protects no pod."""
        meta, selector = budget.metadata, compiled(budget.spec.selector)
        if selector is None or not selector.requirements:
            self.drop(meta.namespace, meta.name)
            return
        status = budget.status
        self._budgets.setdefault(meta.namespace, {})[meta.name] = _Budget(
            selector, status.disruptions_allowed, frozenset(status.disrupted_pods)
        )

    def drop(self, namespace: str, name: str) -> None:
        """Remove a budget. No-op if it is unknown."""
        budgets = self._budgets.get(namespace, {})
        budgets.pop(name, None)
        if not budgets:
            self._budgets.pop(namespace, None)

    def violating(self, victims: Iterable[Pod]) -> list[bool]:
        """Return for each victim whether its eviction exceeds a disruption budget, after the evictions before it.

        A pod that the budget's status lists as disrupted already is not counted again. The budgets do not change.
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
