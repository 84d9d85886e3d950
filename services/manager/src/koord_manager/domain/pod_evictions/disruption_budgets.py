"""PodDisruptionBudgets without an API server: compute their status and the evictions that they allow.

A budget counts the *expected* pods that it selects; for a workload these are its replicas. A pod is *healthy* if its
agent reports it as running. *Desired* is minAvailable, or expected minus maxUnavailable, with percentages rounded up.
The budget allows max(0, healthy - desired) evictions.

Source:
    scheduler-core spec, 6 (step 3), 10.8; Kubernetes' disruption controller
"""

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from koordcore.events.envelope import Draft, name_token
from koordcore.events.objects.custom import CustomObjectObserved, custom_ref
from koordcore.protocol.objects import object_from_json
from koordcore.protocol.scheduling_objects import PodDisruptionBudget
from koordcore.protocol.selectors import Selector, compile_selector
from koordcore.state.aggregates import CustomObjectState, NodeAgentState, PodSpecState, PodState, WorkloadState
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controller_names import DISRUPTION_BUDGET

PLURAL: Final = "poddisruptionbudgets"
LOOK_SECONDS: Final = 1.0
_ENDED: Final = ("Succeeded", "Failed")
_MOST_DIGITS: Final = 9
"""Most digits of a percentage."""


@dataclass(slots=True, kw_only=True)
class Budget:
    """One PodDisruptionBudget with its computed numbers of pods.

    Attributes:
        selector: Selector of pods; None selects no pod.
        expected: Pods that should exist: the replicas of their workloads, and pods without a workload.
        healthy: Pods that their agents report as running.
        desired: Pods that have to stay healthy.
        allowed: Evictions that the budget still allows.
        selected: Uid of each selected pod that has not ended -> whether the pod runs.
        owners: Uids of the workloads of these pods.
    """

    namespace: str
    name: str
    selector: Selector | None
    expected: int = 0
    healthy: int = 0
    desired: int = 0
    allowed: int = 0
    selected: dict[str, bool] = field(default_factory=dict[str, bool])
    owners: set[str] = field(default_factory=set[str])


@dataclass(slots=True)
class Budgets:
    """All PodDisruptionBudgets of a cluster without an API server, with the evictions that they allow."""

    by_namespace: dict[str, list[Budget]] = field(default_factory=dict[str, list[Budget]])
    _by_id: dict[str, Budget] = field(default_factory=dict[str, Budget])
    _position: int = -1
    _next_look: float = 0.0

    def refresh(self, view: ManagerView, now: float) -> None:
        """Compute the numbers of all budgets again, and add the keys of the budgets to the work queue.

        No-op within a second after the last computation, and if no event was folded since.

        Args:
            view: The folded state of the cluster.
            now: Unix time in seconds.
        """
        if not view.customs(PLURAL):
            self.by_namespace, self._by_id = {}, {}
        elif now >= self._next_look and view.state.position != self._position:
            self._next_look, self._position = now + LOOK_SECONDS, view.state.position
            self.by_namespace = _worked_out(view)
            budgets = (budget for some in self.by_namespace.values() for budget in some)
            self._by_id = {custom_ref(PLURAL, one.namespace, one.name).id: one for one in budgets}
            view.queue.resync(DISRUPTION_BUDGET, self._by_id)

    def take(self, uid: str, namespace: str) -> str:
        """Charge the eviction of a pod to its budgets, if all of them allow it.

        Args:
            uid: Uid of the pod.
            namespace: Namespace of the pod.

        Returns:
            "" if the eviction is allowed and charged, otherwise the name of the budget that refuses it. A pod that
            does not run is always allowed.
        """
        concerned = [budget for budget in self.by_namespace.get(namespace, ()) if uid in budget.selected]
        for budget in concerned:
            if budget.selected[uid] and budget.allowed <= 0:
                return budget.name
        for budget in concerned:
            if budget.selected.pop(uid):
                budget.allowed -= 1
        return ""

    def status_draft(self, view: ManagerView, id_: str) -> list[Draft]:
        """Return the fact that updates the status of a PodDisruptionBudget, or nothing if it is up to date.

        Args:
            view: The folded state of the cluster.
            id_: Id of its aggregate.
        """
        state = view.state.of_kind(CustomObjectState).get(id_)
        budget = self._by_id.get(id_)
        if budget is None or state is None:
            return []
        before: dict[str, Any] = state.object.get("status") or {}
        status = {
            **before,
            "expectedPods": budget.expected,
            "currentHealthy": budget.healthy,
            "desiredHealthy": budget.desired,
            "disruptionsAllowed": budget.allowed,
        }
        if status == before:
            return []
        event = CustomObjectObserved(object={**state.object, "status": status})
        return [Draft(custom_ref(PLURAL, budget.namespace, budget.name), event, state.seq)]


def _worked_out(view: ManagerView) -> dict[str, list[Budget]]:
    read: list[tuple[Budget, PodDisruptionBudget]] = []
    by_namespace: dict[str, list[Budget]] = {}
    for _, state in view.customs(PLURAL):
        try:
            written = object_from_json(state.object, PodDisruptionBudget)
        except msgspec.ValidationError:
            continue
        meta = written.metadata
        budget = Budget(namespace=meta.namespace, name=meta.name, selector=_selector(written))
        read.append((budget, written))
        by_namespace.setdefault(meta.namespace, []).append(budget)
    placed = view.state.of_kind(PodState)
    workloads = view.state.of_kind(WorkloadState)
    agents = view.state.of_kind(NodeAgentState)
    running: dict[str, frozenset[str]] = {}
    for uid, spec in view.state.of_kind(PodSpecState).items():
        budgets = by_namespace.get(spec.object.metadata.namespace, ())
        if not budgets or spec.object.status.phase in _ENDED:
            continue
        state = placed.get(uid)
        token = name_token(state.node) if state is not None and state.node else ""
        if token and token not in running:
            agent = agents.get(token)
            running[token] = frozenset(agent.running if agent is not None else ())
        is_healthy = bool(token) and uid in running[token]
        for budget in budgets:
            if budget.selector is not None and budget.selector.matches(spec.object.metadata.labels):
                owner = next((each.uid for each in spec.object.metadata.owner_references if each.uid in workloads), "")
                budget.expected += not owner
                budget.owners.update([owner] if owner else [])
                budget.healthy += is_healthy
                budget.selected[uid] = is_healthy
    for budget, written in read:
        budget.expected += sum(workloads[uid].object.replicas for uid in budget.owners)
        budget.desired = _desired(budget.expected, written)
        budget.allowed = max(0, budget.healthy - budget.desired)
    return by_namespace


def _selector(budget: PodDisruptionBudget) -> Selector | None:
    try:
        return compile_selector(budget.spec.selector) if budget.spec.selector is not None else None
    except InvalidInput:
        return None


def _desired(expected: int, budget: PodDisruptionBudget) -> int:
    """Return the number of pods that have to stay healthy; if the amount is not valid, all."""
    spec = budget.spec
    if spec.max_unavailable is not None:
        most = _scaled(spec.max_unavailable, expected)
        return expected if most is None else max(0, expected - most)
    least = _scaled(1 if spec.min_available is None else spec.min_available, expected)
    return expected if least is None else least


def _scaled(amount: int | str, total: int) -> int | None:
    """Return a number, or a percentage of a total rounded up, or None if the amount is not valid."""
    if isinstance(amount, int):
        return amount
    text = amount.removesuffix("%")
    is_valid = text.isdecimal() and len(text) <= _MOST_DIGITS and amount.endswith("%")
    return -(-int(text) * total // 100) if is_valid else None
