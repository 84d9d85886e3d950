"""Evictions where no API server carries them out: at once, or as far as disruption budgets allow."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, cast

import pytest
from koord_manager.domain.cluster.view import MOST_CHANGED, ChangedUids, ManagerView
from koord_manager.domain.controllers.standalone.evictions import BlockedByBudget, Budgets, decide_eviction
from koordcore.events.catalogue import CATALOGUE
from koordcore.events.envelope import AggregateRef, BasedOn, Draft, Event, Origin, StoredEvent, seal
from koordcore.events.gateway import PodEvicted, PodEvictionFailed, PodEvictionRequested
from koordcore.events.nodestate import PodsStarted, PodsStopped
from koordcore.events.objects import (
    CustomObjectObserved,
    PodSpecAdded,
    PodSpecChanged,
    PodSpecDeleted,
    WorkloadDeleted,
    WorkloadObserved,
    custom_ref,
)
from koordcore.events.pod import PlacementExplanation, PodPlaced
from koordcore.protocol.objects import ObjectMeta, OwnerReference, Pod, PodStatus, Workload
from koordcore.state import ClusterState
from koordcore.state.aggregates import EvictionState, PodSpecState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ORIGIN = Origin(causation_id="t", correlation_id="t", actor="t", occurred_at="2026-01-01T00:00:00.000000Z")
BUDGET = custom_ref("poddisruptionbudgets", "shop", "web")
EXPLANATION = PlacementExplanation(nodes_considered=1, nodes_feasible=1, policy_version="", based_on=BasedOn())


def placed(uid: str) -> PodPlaced:
    return PodPlaced(
        namespace="shop", name=uid, node="n", attempt=1, queued_at="", requests={}, explanation=EXPLANATION
    )


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
            self.write("pod", uid, placed(uid))
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

    def status(self, after: float = 0.0) -> dict[str, int]:
        self.budgets.refresh(self.view, NOW.timestamp() + after)
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


class CountedPods(Mapping[str, PodSpecState]):
    """The pods of a view. It counts how often one of them is read."""

    def __init__(self, pods: Mapping[str, PodSpecState]) -> None:
        self._pods = pods
        self.reads = 0

    def __getitem__(self, uid: str) -> PodSpecState:
        self.reads += 1
        return self._pods[uid]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pods)

    def __len__(self) -> int:
        return len(self._pods)


class CountedState:
    """The state of a view with counted pods."""

    def __init__(self, state: ClusterState) -> None:
        self.real = state
        self.pods = CountedPods(state.of_kind(PodSpecState))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def of_kind(self, kind: type[Any]) -> Any:
        return self.pods if kind is PodSpecState else self.real.of_kind(kind)


def test_a_changed_pod_costs_as_much_as_the_pods_of_its_budget() -> None:
    cluster = Cluster("abc")
    cluster.protect(minAvailable=1)
    for number in range(100):
        for namespace in ("shop", "other"):
            meta = ObjectMeta(name=f"x{number}", namespace=namespace, labels={"app": "other"})
            cluster.write("podspec", f"{namespace}-{number}", PodSpecAdded(object=Pod(metadata=meta)))
    now = NOW.timestamp()
    cluster.budgets.refresh(cluster.view, now)

    cluster.write("nodestate", "n", PodsStopped(pods=["a"]))
    counted = CountedState(cluster.view.state)
    cluster.view.state = cast("ClusterState", counted)
    cluster.budgets.refresh(cluster.view, now + 1)
    assert 0 < counted.pods.reads <= 10
    cluster.view.state = counted.real
    assert cluster.status(1)["currentHealthy"] == 2


def test_the_numbers_are_the_same_whether_changes_are_followed_or_all_is_read_at_once() -> None:
    random, followed, read = Random(7), Cluster("abc", pending="d"), Cluster("abc", pending="d")
    names = "abcdefgh"

    def pod(uid: str) -> Pod:
        owners = [OwnerReference(uid=random.choice("vw"))] if random.random() < 0.5 else []
        labels = {"app": random.choice(["web", "other"])}
        meta = ObjectMeta(name=uid, namespace="shop", uid=uid, labels=labels, owner_references=owners)
        return Pod(metadata=meta, status=PodStatus(phase=random.choice(["", "Running", "Failed"])))

    def budget() -> CustomObjectObserved:
        selector = {"matchLabels": {"app": random.choice(["web", "other", "-"])}}
        spec = {"selector": selector, "minAvailable": random.randrange(3)}
        return CustomObjectObserved(object={"metadata": {"namespace": "shop", "name": "web"}, "spec": spec})

    def change() -> tuple[str, str, Event]:
        uid, kind = random.choice(names), random.randrange(8)
        match kind:
            case 0:
                return "podspec", uid, PodSpecDeleted(namespace="shop", name=uid)
            case 1:
                return "nodestate", "n", PodsStarted(pods=[uid])
            case 2:
                return "nodestate", "n", PodsStopped(pods=[uid])
            case 3:
                return "pod", uid, placed(uid)
            case 4:
                meta = ObjectMeta(name="w", namespace="shop")
                workload = Workload(kind="Deployment", metadata=meta, replicas=random.randrange(5))
                return "workloadspec", random.choice("vw"), WorkloadObserved(object=workload)
            case 5:
                return "workloadspec", random.choice("vw"), WorkloadDeleted(namespace="shop", name="w")
            case 6:
                return BUDGET.kind, BUDGET.id, budget()
            case _:
                return "podspec", uid, PodSpecChanged(object=pod(uid))

    told = 0
    for step in range(400):
        wanted = change()
        followed.write(*wanted)
        read.write(*wanted)
        read.budgets = Budgets()
        drafts: list[list[Draft]] = []
        for cluster in (followed, read):
            cluster.budgets.refresh(cluster.view, NOW.timestamp() + step)
            drafts.append(cluster.budgets.status_draft(cluster.view, BUDGET.id))
        assert drafts[0] == drafts[1], step
        told += len(drafts[0])
    assert told > 300


def test_an_eviction_that_was_not_stored_is_allowed_again_after_the_next_look() -> None:
    cluster = Cluster("ab")
    cluster.protect(minAvailable=1)
    cluster.budgets.refresh(cluster.view, NOW.timestamp())
    assert [cluster.budgets.take(uid, "shop") for uid in "ab"] == ["", "web"]
    cluster.write("nodestate", "other", PodsStarted(pods=["x"]))
    cluster.budgets.refresh(cluster.view, NOW.timestamp() + 1)
    assert cluster.budgets.take("b", "shop") == ""


def test_after_too_many_changes_any_object_may_have_changed() -> None:
    changed = ChangedUids()
    assert changed.take() is None
    changed.add("ab")
    assert changed.take() == {"a", "b"}
    changed.add(str(number) for number in range(MOST_CHANGED + 1))
    changed.add("a")
    assert changed.take() is None
    assert changed.take() == set()
