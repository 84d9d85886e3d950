"""Evictions where no API server carries them out: at once, or as far as disruption budgets allow."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.pod_evictions.disruption_budgets import Budgets
from koord_manager.domain.pod_evictions.execution import BlockedByBudget, decide_eviction
from koordcore.events.agents.nodestate import PodsStarted
from koordcore.events.catalogue import CATALOGUE
from koordcore.events.envelope import AggregateRef, BasedOn, Draft, Event, Origin, StoredEvent, seal
from koordcore.events.objects.custom import CustomObjectObserved, custom_ref
from koordcore.events.objects.gateway import PodEvicted, PodEvictionFailed, PodEvictionRequested
from koordcore.events.objects.mirror import PodSpecAdded, PodSpecDeleted
from koordcore.events.scheduling.placement_explanation import PlacementExplanation
from koordcore.events.scheduling.pod import PodPlaced
from koordcore.protocol.objects import ObjectMeta, Pod
from koordcore.state.aggregates import EvictionState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ORIGIN = Origin(causation_id="t", correlation_id="t", actor="t", occurred_at="2026-01-01T00:00:00.000000Z")
BUDGET = custom_ref("poddisruptionbudgets", "shop", "web")
EXPLANATION = PlacementExplanation(nodes_considered=1, nodes_feasible=1, policy_version="", based_on=BasedOn())


class Cluster:
    """Pods `a`, `b`, ... of app web that run on node n."""

    def __init__(self, running: str, *, pending: str = "") -> None:
        self.view = ManagerView()
        self.budgets = Budgets()
        self._seq = 0
        for uid in running + pending:
            meta = ObjectMeta(name=uid, namespace="shop", uid=uid, labels={"app": "web"})
            self.write("podspec", uid, PodSpecAdded(object=Pod(metadata=meta)))
        for uid in running:
            placed = PodPlaced(
                namespace="shop", name=uid, node="n", attempt=1, queued_at="", requests={}, explanation=EXPLANATION
            )
            self.write("pod", uid, placed)
        self.write("nodestate", "n", PodsStarted(pods=list(running)))

    def write(self, kind: str, id_: str, event: Event) -> None:
        self._seq += 1
        draft = Draft(AggregateRef(kind, id_), event, 0)
        new = seal(draft, ORIGIN, self._seq, CATALOGUE.of(type(event)).schema)
        self.view.fold(StoredEvent(self._seq, draft.ref, new.headers, new.body))

    def protect(self, **spec: Any) -> None:
        selector = {"matchLabels": {"app": "web"}}
        document = {"metadata": {"namespace": "shop", "name": "web"}, "spec": {"selector": selector, **spec}}
        self.write(BUDGET.kind, BUDGET.id, CustomObjectObserved(object=document))

    def ask(
        self, uid: str, method: str = "evict", *, patience: int = 0, initiator: str = "scheduler", **more: Any
    ) -> None:
        event = PodEvictionRequested(
            namespace="shop",
            name=uid,
            initiator=initiator,
            method=method,
            reason="Test",
            give_up_after_seconds=patience,
            **more,
        )
        self.write("eviction", uid, event)

    def carried_out(self, after: float = 0.0) -> list[str]:
        """Uids of the pods that go now; what is decided is stored."""
        now = NOW + timedelta(seconds=after)
        self.budgets.refresh(self.view, now.timestamp())
        gone: list[str] = []
        for uid in list(self.view.state.of_kind(EvictionState)):
            decision = decide_eviction(self.view, self.budgets, uid, now)
            for draft in () if isinstance(decision, BlockedByBudget) else decision:
                assert draft.expected_last == self.view.state.last_seq(draft.ref)
                self.write(draft.ref.kind, draft.ref.id, draft.event)
                if isinstance(draft.event, PodSpecDeleted):
                    gone.append(draft.ref.id)
        return gone

    def status(self) -> dict[str, int]:
        self.budgets.refresh(self.view, NOW.timestamp())
        [draft] = self.budgets.status_draft(self.view, BUDGET.id)
        assert isinstance(draft.event, CustomObjectObserved)
        status: dict[str, int] = draft.event.object["status"]
        self.write(draft.ref.kind, draft.ref.id, draft.event)
        return status


def test_preempted_pod_goes_at_once_whatever_budgets_say() -> None:
    cluster = Cluster("ab")
    cluster.protect(minAvailable=2)
    cluster.ask("a", "delete")
    assert cluster.carried_out() == ["a"]
    assert cluster.carried_out(5) == []


def test_pod_that_its_agent_has_ended_goes_whatever_budgets_say() -> None:
    cluster = Cluster("ab")
    cluster.protect(minAvailable=2)
    cluster.ask("a", initiator="agent")
    assert cluster.carried_out() == ["a"]


def test_evictions_go_as_far_as_the_budget_allows() -> None:
    cluster = Cluster("abcd")
    cluster.protect(minAvailable=2)
    for uid in "abc":
        cluster.ask(uid)
    assert cluster.carried_out() == ["a", "b"]
    assert cluster.view.state.of_kind(EvictionState)["c"].delays == ["DisruptionBudget"]
    assert cluster.carried_out(5) == []
    assert cluster.view.state.of_kind(EvictionState)["c"].delays == ["DisruptionBudget"]


def test_pod_that_does_not_run_may_always_go() -> None:
    cluster = Cluster("ab", pending="c")
    cluster.protect(maxUnavailable=0)
    cluster.ask("c")
    cluster.ask("a")
    assert cluster.carried_out() == ["c"]


def test_eviction_held_up_for_too_long_is_given_up() -> None:
    cluster = Cluster("a")
    cluster.protect(maxUnavailable=0)
    cluster.ask("a", patience=60)
    assert cluster.carried_out(59) == []
    cluster.budgets.refresh(cluster.view, NOW.timestamp())
    decision = decide_eviction(cluster.view, cluster.budgets, "a", NOW + timedelta(seconds=61))
    assert not isinstance(decision, BlockedByBudget)
    [draft] = decision
    assert isinstance(draft.event, PodEvictionFailed)
    assert draft.event.reason == "DisruptionBudget"


def test_an_expired_request_is_not_carried_out_although_its_budget_would_allow_it() -> None:
    cluster = Cluster("a")
    cluster.protect(maxUnavailable=0)
    cluster.ask("a", patience=60)
    assert cluster.carried_out(59) == []
    cluster.protect(maxUnavailable=1)
    assert cluster.carried_out(61) == []
    assert not cluster.view.state.of_kind(EvictionState)


def test_a_request_that_nobody_has_tried_expires_too() -> None:
    cluster = Cluster("ab")
    cluster.ask("a", patience=60)
    cluster.ask("b", patience=0)
    assert cluster.carried_out(61) == ["b"]


@pytest.mark.parametrize(
    ("options", "reason"), [({"dryRun": ["All"]}, "DryRun"), ({"preconditions": {"uid": "other"}}, "Conflict")]
)
def test_a_dry_run_or_a_precondition_keeps_the_pod(options: dict[str, Any], reason: str) -> None:
    cluster = Cluster("a")
    cluster.ask("a", delete_options=options)
    decision = decide_eviction(cluster.view, cluster.budgets, "a", NOW)
    assert not isinstance(decision, BlockedByBudget)
    [draft] = decision
    assert isinstance(draft.event, PodEvictionFailed)
    assert draft.event.reason == reason


def test_request_for_a_pod_that_is_gone_is_answered() -> None:
    cluster = Cluster("")
    cluster.ask("x")
    decision = decide_eviction(cluster.view, cluster.budgets, "x", NOW)
    assert not isinstance(decision, BlockedByBudget)
    [draft] = decision
    assert draft.event == PodEvicted(gone=True)


def test_status_of_a_budget_is_written_once() -> None:
    cluster = Cluster("abc", pending="d")
    cluster.protect(maxUnavailable="25%")
    assert cluster.status() == {"expectedPods": 4, "currentHealthy": 3, "desiredHealthy": 3, "disruptionsAllowed": 0}
    assert cluster.budgets.status_draft(cluster.view, BUDGET.id) == []


def test_budget_that_cannot_be_read_allows_nothing() -> None:
    cluster = Cluster("ab")
    cluster.protect(minAvailable="half")
    assert cluster.status()["disruptionsAllowed"] == 0


@pytest.mark.parametrize("amount", ["x", "-1%", "+1%", "9" * 5000 + "%"])
def test_a_budget_whose_amount_is_not_valid_protects_all_its_pods(amount: str) -> None:
    cluster = Cluster("ab")
    cluster.protect(maxUnavailable=amount)
    assert cluster.status()["desiredHealthy"] == 2
    cluster.ask("a")
    assert cluster.carried_out() == []
