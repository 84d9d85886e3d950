"""What plugins show to one cycle leaves no trace, counts where it is seen, and wakes whom it should."""

from contextlib import suppress

import msgspec
import pytest
from koord_scheduler.domain.columns.node_columns import NodeColumns, Rows
from koord_scheduler.domain.framework.cycle_points import NodeView, Scored, Views
from koord_scheduler.domain.framework.gates import SchedulerGates
from koord_scheduler.domain.framework.outcomes import Rejection
from koord_scheduler.domain.loop.commit.work import Placement
from koordcore.events.explanations import PodUnschedulable
from koordcore.protocol.objects import ContainerImage, Pod
from support.scheduler.plugins import MadeUp, asking, cluster, load_of, node_of, refusal, scheduler_with
from support.scheduler.scheduling import Scheduler, node, pod, with_metadata

# --- nothing stays ---------------------------------------------------------------------------------------------------


class Ghosts(MadeUp):
    """Shows a running pod on every node, to whoever asks for it."""

    name = "Ghosts"

    def before_filter(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Views | None:
        if "ghosts" not in pod.metadata.labels:
            return None
        ghost = globals()["pod"]("real", {"cpu": "1"})
        return Views(nodes={row: NodeView(further_pods=(ghost, ghost)) for row in self.nodes})


def test_a_pod_that_is_shown_on_other_nodes_still_loads_its_own_afterwards() -> None:
    scheduler = scheduler_with(cluster("a", "b"), Ghosts, built_in=["LoadAwareScheduling"])
    home = node_of(scheduler, pod("real", {"cpu": "1"}))
    assert node_of(scheduler, with_metadata(pod("q", {"cpu": "3"}), labels={"ghosts": ""})) == ""
    assert load_of(scheduler.state)[home] == ["real"]


class Failing(Ghosts):
    """Breaks off after the nodes are shown otherwise."""

    name = "Failing"

    def before_score(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Scored | None:
        raise RuntimeError("a bug")


def test_an_exception_in_the_middle_of_a_cycle_leaves_the_columns_as_they_were() -> None:
    scheduler = scheduler_with(cluster("a", "b"), Failing)
    scheduler.log.add_pod(with_metadata(pod("q", {"cpu": "1"}), labels={"ghosts": ""}))
    scheduler.follow()
    before = scheduler.state.nodes.free.copy()
    with suppress(RuntimeError):
        scheduler.decide()
    assert scheduler.state.nodes.free.tolist() == before.tolist()


# --- who is woken ----------------------------------------------------------------------------------------------------


class Keeping(MadeUp):
    """The pods called keeper are not there for those that are labelled."""

    name = "Keeping"

    def before_filter(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Views | None:
        if "team" not in pod.metadata.labels:
            return None
        return Views(nodes={row: NodeView(without=frozenset({"keeper"})) for row in self.nodes})


def test_a_pod_is_woken_although_the_room_that_it_sees_is_taken() -> None:
    log = cluster("a")
    scheduler = scheduler_with(log, Keeping)
    assert node_of(scheduler, pod("keeper", {"cpu": "2"})) == "a"
    assert node_of(scheduler, pod("other", {"cpu": "2"})) == "a"
    assert node_of(scheduler, with_metadata(pod("p", {"cpu": "4"}), labels={"team": ""})) == ""
    log.remove_pod("other")
    scheduler.run(now=30.0)
    scheduler.run(now=60.0)
    assert scheduler.state.pods["p"].node == "a"


def test_a_failed_attempt_does_not_wake_its_own_pod() -> None:
    log = cluster("a")
    scheduler = scheduler_with(log, Keeping)
    assert node_of(scheduler, pod("keeper", {"cpu": "2"})) == "a"
    term = {"labelSelector": {"matchLabels": {"no": "such"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    wanted = with_metadata(pod("p", {"cpu": "5"}, affinity=affinity), labels={"team": "", "no": "such"})
    assert node_of(scheduler, wanted) == ""
    for now in (20.0, 40.0, 60.0):
        scheduler.run(now)
    assert len(scheduler.explanations) <= 1


def test_a_diagnosis_names_no_pod_that_is_not_seen() -> None:
    log = cluster("a")
    scheduler = scheduler_with(log, Keeping)
    for uid in ("keeper", "seen"):
        assert node_of(scheduler, with_metadata(pod(uid, {"cpu": "1"}), labels={"app": "x"})) == "a"
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "name"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert node_of(scheduler, with_metadata(pod("p", affinity=affinity), labels={"team": ""})) == ""
    event = scheduler.explanations[-1].event
    assert isinstance(event, PodUnschedulable)
    assert event.diagnosis is not None
    [failure] = event.diagnosis.failures
    assert "default/seen on a" in str(failure.details)


class Picky(MadeUp):
    """Wants node b to be there."""

    name = "Picky"

    def before_filter(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Rejection | None:
        is_there = any(node.metadata.name == "b" for node in self.nodes.values())
        return None if is_there else Rejection(plugin=self.name, message="no node b")


def test_a_pod_that_a_plugin_of_a_user_refuses_is_attempted_again_when_something_happens_on_nodes() -> None:
    log = cluster("a")
    scheduler = scheduler_with(log, Picky)
    assert node_of(scheduler, pod("p")) == ""
    assert node_of(scheduler, pod("q")) == ""
    scheduler.run(now=30.0)
    assert len(scheduler.explanations) == 2
    log.add_node(node("b"))
    for now in (60.0, 90.0):
        scheduler.run(now)
    assert all(scheduler.state.pods[uid].node for uid in "pq")


# --- what cannot be read ---------------------------------------------------------------------------------------------


class Nonsense(MadeUp):
    """Makes copies that ask for what is no quantity, where the label says so."""

    name = "Nonsense"

    def _copy(self, pod: Pod, where: str) -> Pod | None:
        return asking(pod, {"cpu": "many"}) if pod.metadata.labels.get("nonsense") == where else None

    def before_pre_filter(self, pod: Pod, now: float) -> Pod | None:
        return self._copy(pod, "pre_filter")

    def before_filter(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Views | None:
        copy = self._copy(pod, "filter")
        if copy is not None:
            return Views(pods=[(rows[:1], copy)])
        copy = self._copy(pod, "beside")
        return None if copy is None else Views(nodes={0: NodeView(further_pods=(copy,))})

    def before_score(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Scored | None:
        return Scored(pod=self._copy(pod, "score"))

    def resize_pod(self, pod: Pod, node: str) -> Pod | Rejection | None:
        return self._copy(pod, "resize")


@pytest.mark.parametrize("where", ["pre_filter", "filter", "beside", "score", "resize"])
def test_a_copy_that_cannot_be_read_fails_the_attempt_of_its_pod_and_nothing_else(where: str) -> None:
    scheduler = scheduler_with(cluster("a", "b"), Nonsense, gates=SchedulerGates(resize_pod=True))
    assert node_of(scheduler, with_metadata(pod("p", {"cpu": "1"}), labels={"nonsense": where})) == ""
    assert "Nonsense" in refusal(scheduler).message
    assert "'many'" in refusal(scheduler).message
    assert node_of(scheduler, pod("q", {"cpu": "1"})) != ""


# --- ResizePod -------------------------------------------------------------------------------------------------------


class Fitted(MadeUp):
    """A label says what the pod is to ask for on its node."""

    name = "Fitted"

    def resize_pod(self, pod: Pod, node: str) -> Pod | Rejection | None:
        cores = pod.metadata.labels.get("cores")
        return None if cores is None else asking(pod, {"cpu": cores})


def fitted(*names: str) -> Scheduler:
    return scheduler_with(cluster(*names), Fitted, gates=SchedulerGates(resize_pod=True))


def sized(uid: str, cores: str) -> Pod:
    return with_metadata(pod(uid, {"cpu": "1"}), labels={"cores": cores})


def test_a_pod_that_did_not_fit_as_resized_is_tried_again_when_room_appears() -> None:
    scheduler = fitted("a")
    assert node_of(scheduler, pod("other", {"cpu": "2"})) == "a"
    assert node_of(scheduler, sized("p", "3")) == ""
    scheduler.log.remove_pod("other")
    scheduler.run(now=30.0)
    scheduler.run(now=60.0)
    assert scheduler.state.pods["p"].node == "a"


def test_a_resized_pod_leaves_room_for_those_that_are_nominated() -> None:
    scheduler = fitted("a")
    scheduler.log.add_pod(pod("promised", {"cpu": "3"}, schedulingGates=[{"name": "later"}]))
    scheduler.run()
    scheduler.state.nominator.put("promised", "a", 0)
    assert node_of(scheduler, sized("p", "2")) == ""
    assert refusal(scheduler).message == "node a: the pod does not fit with what it is to ask for"
    assert node_of(scheduler, sized("q", "1")) == "a"


class Pinned(Fitted):
    """Nodes judge a copy of the pod that goes to node b only."""

    name = "Pinned"

    def before_filter(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Views | None:
        spec = msgspec.structs.replace(pod.spec, node_selector={"name": "b"})
        return Views(pods=[(rows, msgspec.structs.replace(pod, spec=spec))])


def test_a_node_judges_a_resized_pod_as_the_copy_that_it_was_chosen_for() -> None:
    scheduler = scheduler_with(cluster("a", "b"), Pinned, gates=SchedulerGates(resize_pod=True))
    wanted = sized("p", "3")
    spec = msgspec.structs.replace(wanted.spec, node_selector={"name": "a"})
    assert node_of(scheduler, msgspec.structs.replace(wanted, spec=spec)) == "b"
    assert scheduler.state.nodes.free[1].tolist()[:2] == [4000, 1000]


# --- images ----------------------------------------------------------------------------------------------------------


class Pulling(MadeUp):
    """Node b has the image already, for those that are labelled."""

    name = "Pulling"

    def before_filter(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Views | None:
        if "pulled" not in pod.metadata.labels:
            return None
        plain = self.nodes[self.row("b")]
        images = [ContainerImage(names=["big:1"], size_bytes=1 << 30)]
        status = msgspec.structs.replace(plain.status, images=images)
        return Views(nodes={self.row("b"): NodeView(node=msgspec.structs.replace(plain, status=status))})


def locality(scheduler: Scheduler, uid: str, labels: dict[str, str]) -> dict[str, int]:
    """What ImageLocality gave each node when the pod was placed."""
    wanted = with_metadata(pod(uid, {"cpu": "1"}), labels=labels)
    [container] = wanted.spec.containers
    containers = [msgspec.structs.replace(container, image="big:1")]
    spec = msgspec.structs.replace(wanted.spec, containers=containers)
    scheduler.log.add_pod(msgspec.structs.replace(wanted, spec=spec))
    scheduler.follow()
    placed = scheduler.decide()
    assert isinstance(placed, Placement)
    return {top.node: top.parts["ImageLocality"] for top in placed.explanation.top}


def test_images_are_seen_in_their_cycle_only() -> None:
    scheduler = scheduler_with(cluster("a", "b"), Pulling)
    assert locality(scheduler, "p", {})["b"] == 0
    assert locality(scheduler, "q", {"pulled": ""})["b"] > 0
    assert locality(scheduler, "r", {})["b"] == 0


class Lending(MadeUp):
    """Node b has a resource that no node offers, for those that are labelled, or for a copy of them."""

    name = "Lending"

    def before_filter(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Views | None:
        if "borrows" not in pod.metadata.labels:
            return None
        plain = self.nodes[self.row("b")]
        allocatable = {**plain.status.allocatable, "example.com/a": "2"}
        status = msgspec.structs.replace(plain.status, allocatable=allocatable)
        copies = [(rows, msgspec.structs.replace(pod))] if pod.metadata.labels["borrows"] == "copy" else []
        shown = NodeView(node=msgspec.structs.replace(plain, status=status))
        return Views(pods=copies, nodes={self.row("b"): shown})


@pytest.mark.parametrize("what", ["itself", "copy"])
def test_a_resource_that_no_node_offers_is_seen_in_its_cycle_only(what: str) -> None:
    scheduler = scheduler_with(cluster("a", "b"), Lending)
    wanted = {"cpu": "1", "example.com/a": "2"}
    assert node_of(scheduler, pod("p", wanted)) == ""
    assert node_of(scheduler, with_metadata(pod("q", wanted), labels={"borrows": what})) == "b"
    assert node_of(scheduler, with_metadata(pod("r", wanted), labels={"borrows": what})) == ""
    assert node_of(scheduler, pod("s", wanted)) == ""


class Fussy(Picky):
    """Refuses what is labelled so for ever."""

    name = "Fussy"

    def before_filter(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Rejection | None:
        if "never" in pod.metadata.labels:
            return Rejection(plugin=self.name, message="never")
        return super().before_filter(pod, nodes, rows)


def test_pods_that_a_plugin_refuses_do_not_hold_back_those_of_another_kind() -> None:
    log = cluster("a")
    scheduler = scheduler_with(log, Fussy)
    assert node_of(scheduler, with_metadata(pod("hopeless", priority=9), labels={"never": ""})) == ""
    assert node_of(scheduler, pod("hopeful")) == ""
    log.add_node(node("b"))
    scheduler.run(now=30.0)
    assert scheduler.state.pods["hopeful"].node
