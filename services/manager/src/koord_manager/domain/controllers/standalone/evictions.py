"""Evictions without an API server, and the PodDisruptionBudgets that allow them.

A budget counts the *expected* pods that it selects; for a workload these are its replicas. A pod is *healthy* if its
agent reports it as running. *Desired* is minAvailable, or expected minus maxUnavailable, with percentages rounded up.
The budget allows max(0, healthy - desired) evictions.

Only the budgets that select a changed pod, or a pod of a changed workload, are computed again. A budget with a new
selector looks at the pods of its namespace.

Preemptions, and evictions that a node's agent requested, are carried out at once: the pod is deleted, and its workload
creates a new one. Other evictions wait until every budget allows them. With Kubernetes, the gateway evicts through the
API server, which checks the budgets itself.

Source:
    scheduler-core spec, 6 (step 3), 10.8; event-bus spec, 2.1; Kubernetes' disruption controller
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
from koordcore.events.envelope import AggregateRef, Draft, name_token
from koordcore.events.gateway import ONLY_TRIED, PodEvicted, PodEvictionDelayed, PodEvictionFailed
from koordcore.events.objects import CustomObjectObserved, PodSpecDeleted, custom_ref
from koordcore.protocol.objects import Pod, object_from_json
from koordcore.protocol.scheduling_objects import PodDisruptionBudget
from koordcore.protocol.selectors import Selector, compile_selector
from koordcore.state.aggregates import (
    CustomObjectState,
    EvictionState,
    NodeAgentState,
    PodSpecState,
    PodState,
    WorkloadState,
)
from koordcore.state.index import IdsByKey
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.cluster.mirrored_kinds import BUDGETS
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.cluster.withdrawn_evictions import withdrawal
from koord_manager.domain.controller_names import DISRUPTION_BUDGET
from koord_manager.domain.controllers.agent_evictions import INITIATOR as AGENT

LOOK_SECONDS: Final = 1.0
_ENDED: Final = ("Succeeded", "Failed")
_MOST_DIGITS: Final = 9
"""Most digits of a percentage."""


@dataclass(slots=True, kw_only=True)
class Budget:
    id: str  # Id of its aggregate
    written: PodDisruptionBudget
    seq: int  # Position of its last event
    selector: Selector | None  # Selector of pods; None selects no pod
    pods: set[str] = field(default_factory=set[str])  # Uids of all selected pods that have not ended
    expected: int = 0  # Pods that should exist: the replicas of their workloads, and pods without a workload
    healthy: int = 0  # Pods that their agents report as running
    desired: int = 0  # Pods that have to stay healthy
    allowed: int = 0  # Evictions that the budget still allows
    # Uid of each of these pods, without the evicted ones -> whether the pod runs.
    selected: dict[str, bool] = field(default_factory=dict[str, bool])

    def selects(self, pod: Pod) -> bool:
        return self.selector is not None and self.selector.matches(pod.metadata.labels)


class _Pods:
    """The pods that have not ended, by namespace and by owner."""

    def __init__(self) -> None:
        self._in = IdsByKey[str]()
        self._owned = IdsByKey[str]()

    def put(self, uid: str, pod: Pod | None) -> None:
        meta = pod.metadata if pod is not None else None
        self._in.put(uid, *([meta.namespace] if meta is not None else []))
        self._owned.put(uid, *(owner.uid for owner in (meta.owner_references if meta is not None else [])))

    def namespace(self, uid: str) -> str | None:
        return next(iter(self._in.keys_of(uid)), None)

    def of_namespace(self, namespace: str) -> Iterable[str]:
        return self._in.of(namespace)

    def of_owner(self, owner: str) -> Iterable[str]:
        return self._owned.of(owner)


@dataclass(slots=True)
class Budgets:
    """All PodDisruptionBudgets of a cluster without an API server, with the evictions that they allow."""

    _by_namespace: dict[str, dict[str, Budget]] = field(default_factory=dict[str, dict[str, Budget]])
    _by_id: dict[str, Budget] = field(default_factory=dict[str, Budget])
    _stale: set[str] = field(default_factory=set[str])
    _pods: _Pods | None = None
    _version: int = -1
    _position: int = -1
    _next_look: float = 0.0

    def refresh(self, view: ManagerView, now: float) -> None:
        """Compute the numbers of the changed budgets again, and queue all budgets. `now`: Unix time in seconds.

        No-op within a second after the last computation, and if no event was folded since.
        """
        if not view.customs(BUDGETS):
            view.changed_uids.stop()
            self._forget()
        elif now >= self._next_look and view.state.position != self._position:
            self._next_look, self._position = now + LOOK_SECONDS, view.state.position
            changed = view.changed_uids.take()
            if changed is None or self._pods is None:
                self._forget()
                changed = set(view.state.of_kind(PodSpecState))
            self._pods = self._pods or _Pods()
            self._put_pods(view, self._pods, changed)
            if self._version != view.custom_version(BUDGETS):
                self._version = view.custom_version(BUDGETS)
                self._read_budgets(view, self._pods)
            for budget in (self._by_id[id_] for id_ in self._stale if id_ in self._by_id):
                _work_out(view, budget)
            self._stale.clear()
            view.queue.resync(DISRUPTION_BUDGET, self._by_id)

    def _forget(self) -> None:
        self._by_namespace, self._by_id, self._stale = {}, {}, set()
        self._pods, self._version = None, -1

    def _put_pods(self, view: ManagerView, pods: _Pods, changed: set[str]) -> None:
        """Update the pods that the budgets select, and mark the budgets of changed pods and workloads as stale."""
        specs = view.state.of_kind(PodSpecState)
        for uid in changed:
            for budget in self._with(uid, pods.namespace(uid)):
                budget.pods.discard(uid)
                self._stale.add(budget.id)
            spec = specs.get(uid)
            pod = spec.object if spec is not None and spec.object.status.phase not in _ENDED else None
            pods.put(uid, pod)
            if pod is not None:
                for budget in self._by_namespace.get(pod.metadata.namespace, {}).values():
                    if budget.selects(pod):
                        budget.pods.add(uid)
                        self._stale.add(budget.id)
            for owned in pods.of_owner(uid):
                self._stale.update(budget.id for budget in self._with(owned, pods.namespace(owned)))

    def _with(self, uid: str, namespace: str | None) -> list[Budget]:
        if namespace is None:
            return []
        return [budget for budget in self._by_namespace.get(namespace, {}).values() if uid in budget.pods]

    def _read_budgets(self, view: ManagerView, pods: _Pods) -> None:
        """Read the objects that changed. A budget with a new selector selects its pods again."""
        before, self._by_id, self._by_namespace = self._by_id, {}, {}
        specs = view.state.of_kind(PodSpecState)
        for name, state in view.customs(BUDGETS):
            id_ = f"{BUDGETS}={name}"
            budget = before.get(id_)
            if budget is None or budget.seq != state.seq:
                try:
                    written = object_from_json(state.object, PodDisruptionBudget)
                except msgspec.ValidationError:
                    continue
                selector = _selector(written)
                is_selecting = budget is not None and budget.selector == selector
                kept = budget.pods if budget is not None and is_selecting else set[str]()
                budget = Budget(id=id_, written=written, seq=state.seq, selector=selector, pods=kept)
                if not is_selecting:
                    of_namespace = pods.of_namespace(written.metadata.namespace)
                    budget.pods.update(uid for uid in of_namespace if budget.selects(specs[uid].object))
                self._stale.add(id_)
            self._by_id[id_] = budget
            self._by_namespace.setdefault(budget.written.metadata.namespace, {})[id_] = budget

    def take(self, uid: str, namespace: str) -> str:
        """Charge the eviction of a pod to its budgets; return the name of one that does not allow it, or "".

        A pod that does not run is always allowed.
        """
        in_namespace = self._by_namespace.get(namespace, {})
        concerned = [in_namespace[id_] for id_ in sorted(in_namespace) if uid in in_namespace[id_].selected]
        for budget in concerned:
            if budget.selected[uid] and budget.allowed <= 0:
                return budget.written.metadata.name
        for budget in concerned:
            self._stale.add(budget.id)  # the eviction may not be stored
            if budget.selected.pop(uid):
                budget.allowed -= 1
        return ""

    def status_draft(self, view: ManagerView, id_: str) -> list[Draft]:
        """Return the fact that updates the status of a PodDisruptionBudget, or nothing if it is up to date."""
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
        event, meta = CustomObjectObserved(object={**state.object, "status": status}), budget.written.metadata
        return [Draft(custom_ref(BUDGETS, meta.namespace, meta.name), event, state.seq)]


def _work_out(view: ManagerView, budget: Budget) -> None:
    """Compute the numbers of a budget from the pods that it selects."""
    specs, placed = view.state.of_kind(PodSpecState), view.state.of_kind(PodState)
    workloads, agents = view.state.of_kind(WorkloadState), view.state.of_kind(NodeAgentState)
    running: dict[str, frozenset[str]] = {}
    owners: set[str] = set()
    budget.expected, budget.selected = 0, {}
    for uid in budget.pods:
        state = placed.get(uid)
        token = name_token(state.node) if state is not None and state.node else ""
        if token and token not in running:
            agent = agents.get(token)
            running[token] = frozenset(agent.running if agent is not None else ())
        references = specs[uid].object.metadata.owner_references
        owner = next((each.uid for each in references if each.uid in workloads), "")
        if owner:
            owners.add(owner)
        else:
            budget.expected += 1
        budget.selected[uid] = bool(token) and uid in running[token]
    budget.expected += sum(workloads[uid].object.replicas for uid in owners)
    budget.healthy = sum(budget.selected.values())
    budget.desired = _desired(budget.expected, budget.written)
    budget.allowed = max(0, budget.healthy - budget.desired)


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


HELD_UP: Final = "DisruptionBudget"


class BlockedByBudget(NamedTuple):
    """Result of `decide_eviction`: a disruption budget still does not allow the eviction."""

    budget: str


def decide_eviction(view: ManagerView, budgets: Budgets, uid: str, now: datetime) -> list[Draft] | BlockedByBudget:
    """Decide a requested eviction; an allowed one is charged to the budgets.

    Return the facts that delete the pod, end the eviction, or record that a disruption budget delays it, to append
    together. They are empty if no eviction is requested. `BlockedByBudget` if the delay is recorded already.
    """
    request_state = view.state.of_kind(EvictionState).get(uid)
    if request_state is None:
        return []
    ref, spec = AggregateRef("eviction", uid), view.state.of_kind(PodSpecState).get(uid)
    if spec is None:
        return [Draft(ref, PodEvicted(gone=True), request_state.seq)]
    if (withdrawn := withdrawal(view, request_state.request)) is not None:
        return [Draft(ref, withdrawn, request_state.seq)]
    if (over := request_state.expired(now)) is not None:
        return [Draft(ref, over, request_state.seq)]
    meta, request = spec.object.metadata, request_state.request
    if request.method == "evict" and request.initiator != AGENT:
        budget = budgets.take(uid, meta.namespace)
        if budget:
            if HELD_UP in request_state.delays:
                return BlockedByBudget(budget)
            message = f"disruption budget {budget} does not allow it"
            return [Draft(ref, PodEvictionDelayed(reason=HELD_UP, message=message), request_state.seq)]
    wanted = request.delete_options.get("preconditions", {})
    if any(wanted.get(name, has) != has for name, has in (("uid", uid), ("resourceVersion", meta.resource_version))):
        failed = PodEvictionFailed(reason="Conflict", message=f"the pod does not meet the preconditions {wanted}")
        return [Draft(ref, failed, request_state.seq)]
    if request.is_dry_run:
        return [Draft(ref, ONLY_TRIED, request_state.seq)]
    gone = PodSpecDeleted(namespace=meta.namespace, name=meta.name)
    return [Draft(AggregateRef("podspec", uid), gone, spec.seq), Draft(ref, PodEvicted(), request_state.seq)]
