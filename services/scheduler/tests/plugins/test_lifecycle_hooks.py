"""What plugins do beside choosing nodes: write on bound pods, hear of failures, control, answer over HTTP."""

from collections.abc import Mapping, Sequence

import httpx
import numpy as np
import pytest
from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows
from koord_scheduler.domain.framework.cycle_points import NodeView, Scored, Views
from koord_scheduler.domain.framework.extension_points import AFTER_FAILURE
from koord_scheduler.domain.framework.lifecycle_hooks import Eviction, PageAnswer
from koord_scheduler.domain.framework.node_points import Reads
from koord_scheduler.domain.framework.outcomes import Allow, Rejection, Wait
from koord_scheduler.domain.loop.controllers import next_status_due, status_facts
from koord_scheduler.domain.loop.state.known_state import Settings
from koord_scheduler.shell.debugging import DebugFlags, DecisionLog
from koord_scheduler.shell.routes import routes
from koordcore.events import CATALOGUE
from koordcore.events.gateway import PodEvictionRequested
from koordcore.events.pod import PodPlaced
from koordcore.protocol.annotations.gang import BoundGang
from koordcore.protocol.objects import Pod
from koordcore.service.telemetry.logging import logger, set_level
from starlette.applications import Starlette
from support.scheduler.plugins import MadeUp, scheduler_with, shipped_with
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata


def cluster(*names: str) -> SmallLog:
    log = SmallLog()
    for name in names:
        log.add_node(node(name))
    return log


def placed(log: SmallLog) -> dict[str, PodPlaced]:
    return {stored.ref.id: event for stored in log.events if isinstance(event := CATALOGUE.read(stored), PodPlaced)}


class Stamping(MadeUp):
    """Writes the node, and its own name."""

    name = "Stamping"

    def pre_bind(self, pod: PodRecord, node: str) -> Mapping[str, str]:
        return {"example.com/rack": f"rack of {node}", "example.com/by": self.name}


class Overwriting(Stamping):
    """Comes after it."""

    name = "Overwriting"

    def pre_bind(self, pod: PodRecord, node: str) -> Mapping[str, str]:
        return {"example.com/by": self.name}


def test_what_plugins_write_on_a_pod_goes_with_its_placement_merged_in_the_order_of_the_point() -> None:
    log = cluster("a")
    log.add_pod(pod("p"))
    scheduler_with(log, Stamping, Overwriting).run()
    assert placed(log)["p"].annotations == {"example.com/rack": "rack of a", "example.com/by": "Overwriting"}


def test_what_plugins_write_on_a_member_leaves_its_gang_alone() -> None:
    log = cluster("a")
    own = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
    for uid in "pq":
        log.add_pod(with_metadata(pod(uid), annotations=own))
    scheduler = shipped_with(log, Stamping)
    scheduler.run()
    assert placed(log)["p"].annotations["example.com/rack"] == "rack of a"
    assert placed(log)["p"].gang == BoundGang("default/g", 2)


class Patient(MadeUp):
    """Deals with the failures of pods that say so."""

    name = "Patient"
    heard: list[str]

    def __init__(self) -> None:
        super().__init__()
        self.heard = []

    def before_failure(self, pod: PodRecord, message: str) -> bool:
        return pod.name.startswith("quiet")

    def after_failure(self, pod: PodRecord, message: str) -> None:
        self.heard.append(f"{pod.name}: {message}")


def test_a_failure_that_a_plugin_deals_with_is_told_nobody_and_the_pod_waits_on() -> None:
    log = cluster("a")
    scheduler = scheduler_with(log, Patient)
    for uid in ("quiet", "loud"):
        log.add_pod(pod(uid, {"cpu": "8"}))
    scheduler.run()
    assert [explanation.uid for explanation in scheduler.explanations] == ["loud"]
    [plugin] = scheduler.state.frameworks.first.profile.plugins.at(AFTER_FAILURE)
    assert isinstance(plugin, Patient)
    assert {heard.partition(":")[0] for heard in plugin.heard} == {"quiet", "loud"}
    assert all("Insufficient cpu" in heard for heard in plugin.heard)
    log.add_node(node("b", cpu="16"))
    scheduler.run(now=60.0)
    assert sorted(placed(log)) == ["loud", "quiet"]


class Hesitant(Patient):
    """Refuses some at Permit, and lets others wait."""

    name = "Hesitant"

    def permit(self, pod: PodRecord, node: str) -> Rejection | Wait | Allow:
        match pod.name.rpartition("-")[2]:
            case "refused":
                return Rejection(plugin=self.name, message="not there")
            case "waits":
                return Wait(seconds=5.0)
            case _:
                return Allow()


def test_plugins_hear_of_pods_that_lose_a_node_before_they_go_there() -> None:
    scheduler = scheduler_with(cluster("a"), Hesitant)
    for uid in ("loud-refused", "quiet-refused", "loud-waits", "quiet-waits"):
        scheduler.log.add_pod(pod(uid))
    scheduler.run()
    scheduler.run(now=6.0)
    [plugin] = scheduler.state.frameworks.first.profile.plugins.at(AFTER_FAILURE)
    assert isinstance(plugin, Patient)
    heard = {heard.partition(":")[0] for heard in plugin.heard}
    assert heard == {"loud-refused", "quiet-refused", "loud-waits", "quiet-waits"}
    assert {explanation.uid for explanation in scheduler.explanations} == {"loud-refused", "loud-waits"}


class Tidy(MadeUp):
    """Wants pods to leave that are called so; answers who they are."""

    name = "Tidy"
    next = 0.0

    def control_due(self) -> float | None:
        return self.next

    def control(self, now: float) -> Sequence[Eviction]:
        self.next = now + 30.0
        return [Eviction(uid, f"untidy at {now:.0f}") for uid in ("untidy", "unknown")]

    def pages(self) -> Mapping[str, PageAnswer]:
        return {"untidy/{name}": self._page}

    def _page(self, asked: Mapping[str, str]) -> object:
        return {"name": asked["name"], "verbose": asked.get("v", "")} if asked["name"] == "untidy" else None


def asked_to_leave(scheduler: Scheduler, now: float) -> list[PodEvictionRequested]:
    facts = [event for write in status_facts(scheduler.state, now) for _, event in write.facts]
    return [event for event in facts if isinstance(event, PodEvictionRequested)]


def test_a_controller_runs_at_its_interval_and_asks_each_pod_once() -> None:
    log = cluster("a")
    scheduler = scheduler_with(log, Tidy, settings=Settings(controllers=frozenset({"Tidy"})))
    for uid in ("tidy", "untidy"):
        log.add_pod(pod(uid))
    scheduler.run()
    [asked] = asked_to_leave(scheduler, 100.0)
    assert (asked.name, asked.node, asked.reason, asked.message) == ("untidy", "a", "Tidy", "untidy at 100")
    assert next_status_due(scheduler.state) == 130.0
    scheduler.state.nominator.evictions.clear()
    assert asked_to_leave(scheduler, 129.0) == []
    assert len(asked_to_leave(scheduler, 130.0)) == 1
    assert asked_to_leave(scheduler, 160.0) == []


def test_a_controller_evicts_nobody_who_has_no_node() -> None:
    scheduler = scheduler_with(cluster("a"), Tidy, settings=Settings(controllers=frozenset({"Tidy"})))
    scheduler.log.add_pod(pod("untidy", {"cpu": "64"}))
    scheduler.run()
    assert asked_to_leave(scheduler, 100.0) == []


def test_a_controller_that_is_not_chosen_does_not_run() -> None:
    scheduler = scheduler_with(cluster("a"), Tidy, settings=Settings(controllers=frozenset()))
    scheduler.log.add_pod(pod("untidy"))
    scheduler.run()
    assert asked_to_leave(scheduler, 100.0) == []
    assert next_status_due(scheduler.state) is None


@pytest.mark.parametrize(("leads", "status"), [(True, 200), (False, 503)])
async def test_a_plugin_answers_over_http_on_the_leader(leads: bool, status: int) -> None:
    scheduler = scheduler_with(cluster("a"), Tidy)
    frameworks = scheduler.state.frameworks
    decision_log = DecisionLog(DebugFlags(), frameworks, logger("test"), queue_size=1, set_level=set_level)
    pages = routes(scheduler.state, configuration={}, decision_log=decision_log, is_leader=lambda: leads)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(Starlette(routes=pages)), base_url="http://s") as client:
        answer = await client.get("/apis/v1/plugins/Tidy/untidy/untidy?v=1")
        assert answer.status_code == status
        if leads:
            assert answer.json() == {"name": "untidy", "verbose": "1"}
            assert (await client.get("/apis/v1/plugins/Tidy/untidy/other")).status_code == 404
            known = (await client.get("/apis/v1/__services__")).json()["GET"]
            assert "/apis/v1/plugins/Tidy/untidy/{name}" in known


# --- exceptions ------------------------------------------------------------------------------------------------------


class Broken(MadeUp):
    """Raises where the pod's label says, also in the middle of a look at all nodes."""

    name = "Broken"
    reads = Reads.LOAD
    normalizes = False

    def before_pre_filter(self, pod: Pod, now: float) -> Pod | None:
        return self._perhaps(pod, "before_pre_filter")

    def before_filter(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Views | None:
        views = Views(nodes={0: NodeView(without=frozenset({"first"}))})
        return (
            views if pod.metadata.labels.get("at") in ("filter", "preemption") else self._perhaps(pod, "before_filter")
        )

    def before_score(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Scored | None:
        return self._perhaps(pod, "before_score")

    def read(self, pod: Pod) -> str | None:
        return pod.metadata.labels.get("at")

    def filter(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        if pod.aspects.get(self.name) == "filter":
            raise LookupError("in filter")
        return None

    def reasons(self, pod: PodClass, nodes: NodeColumns, code: int) -> tuple[str, ...]:
        return ()

    def unresolvable(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> BoolArray:
        return np.zeros(len(rows), np.bool_)

    def _perhaps(self, pod: Pod, where: str) -> None:
        if pod.metadata.labels.get("at") == where:
            raise LookupError(f"in {where}")


@pytest.mark.parametrize("where", ["before_pre_filter", "before_filter", "filter", "before_score"])
def test_an_exception_of_a_plugin_fails_the_attempt_of_its_pod_alone(where: str) -> None:
    log = cluster("a", "b")
    scheduler = scheduler_with(log, Broken)
    log.add_pod(pod("first", {"cpu": "1"}))
    scheduler.run()
    free = scheduler.state.nodes.free.tolist()
    for number in range(3):
        log.add_pod(with_metadata(pod(f"bad-{number}", {"cpu": "1"}), labels={"at": where}))
    scheduler.run()
    assert scheduler.state.nodes.free.tolist() == free
    told = {explanation.uid: explanation.message for explanation in scheduler.explanations}
    assert told == {
        f"bad-{number}": f"0/2 nodes are available: plugin Broken failed: LookupError: in {where}."
        for number in range(3)
    }
    assert [fault.pod for fault in scheduler.state.reports.plugin_faults] == [
        f"default/bad-{number}" for number in range(3)
    ]
    assert f"in {where}" in scheduler.state.reports.plugin_faults[0].trace
    log.add_pod(pod("good", {"cpu": "1"}))
    log.add_pod(with_metadata(pod("bad-0", {"cpu": "1"}), labels={"at": "nowhere"}))
    scheduler.run(now=60.0)
    assert sorted(placed(log)) == ["bad-0", "first", "good"]
    assert {explanation.uid for explanation in scheduler.explanations[3:]} <= {"bad-1", "bad-2"}


def test_an_exception_of_our_own_is_not_hidden() -> None:
    log = cluster("a")
    scheduler = scheduler_with(log, Broken)
    scheduler.state.frameworks.packages.clear()
    log.add_node(node("b"))
    log.add_pod(with_metadata(pod("p"), labels={"at": "before_score"}))
    with pytest.raises(LookupError, match="in before_score"):
        scheduler.run()
