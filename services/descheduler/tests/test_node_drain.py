"""A drain under any interleaving of events: what it may do, and what it leaves behind."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koord_descheduler.domain.drain.changes import change_of, cordon, uncordon
from koord_descheduler.domain.drain.node_drain import DrainView, look
from koord_descheduler.domain.drain.progress import (
    CreateJob,
    CreateReservation,
    DeleteJob,
    DeleteReservation,
    DrainPhase,
    DrainProgress,
    part_name,
)
from koord_descheduler.domain.view.pods import PodView
from koordcore.protocol.drains import (
    ConfirmState,
    CordonMode,
    CordonPolicy,
    DrainNode,
    DrainNodeSpec,
    MigrationMode,
    MigrationPolicy,
)
from koordcore.protocol.objects import ObjectMeta
from koordcore.protocol.reservation_status import ReservationStatus
from koordcore.protocol.selectors import check_label_value
from koordcore.requests.objects import CreateObject
from support.descheduler.views import pod_view_from_json

UIDS = ("aaaaaaaa", "bbbbbbbb")
EVENTS = st.one_of(
    st.tuples(st.just("pod gone"), st.sampled_from(UIDS)),
    st.tuples(
        st.sampled_from(["Available", "Failed", "Succeeded", "reservation gone"]),
        st.sampled_from(UIDS),
    ),
    st.tuples(st.sampled_from(["job Succeeded", "job Failed", "job gone"]), st.sampled_from(UIDS)),
    st.tuples(st.sampled_from([*ConfirmState]), st.just("")),
)


@dataclass(slots=True)
class World:
    """The objects around a drain."""

    pods: dict[str, PodView]
    state: ConfirmState = ConfirmState.WAIT_FOR_CONFIRM
    reservations: dict[str, ReservationStatus] = field(default_factory=dict[str, ReservationStatus])
    jobs: dict[str, str] = field(default_factory=dict[str, str])

    def view(self) -> DrainView:
        spec = DrainNodeSpec(
            node_name="n",
            confirm_state=self.state,
            migration_policy=MigrationPolicy(mode=MigrationMode.MIGRATE_DIRECTLY),
        )
        return DrainView(
            drain=DrainNode(metadata=ObjectMeta(name="d"), spec=spec),
            now=0.0,
            node_exists=True,
            pods=list(self.pods.values()),
            reservations=self.reservations,
            jobs=self.jobs,
            refusals=lambda _: (),
            scheduler_names=frozenset({"koord-scheduler"}),
        )

    def happen(self, what: str, uid: str) -> None:
        name = part_name("d", uid)
        if what == "pod gone":
            self.pods.pop(uid, None)
        elif what == "reservation gone":
            self.reservations.pop(name, None)
        elif what == "job gone":
            self.jobs.pop(name, None)
        elif what.startswith("job "):
            if name in self.jobs:
                self.jobs[name] = what.removeprefix("job ")
        elif what in [*ConfirmState]:
            self.state = ConfirmState(what)
        elif name in self.reservations:
            self.reservations[name] = ReservationStatus(phase=what, node="m")

    def settle(self, progress: DrainProgress) -> DrainProgress:
        """Look until nothing changes, and check each effect against the objects at its time."""
        for _ in range(10):
            step = look(self.view(), progress)
            for effect in step.effects:
                if isinstance(effect, CreateReservation):
                    assert effect.name not in self.reservations
                    self.reservations[effect.name] = ReservationStatus()
                elif isinstance(effect, CreateJob):
                    assert self.state is ConfirmState.CONFIRMED
                    assert self.reservations[effect.name].phase == "Available"
                    assert effect.pod in self.pods
                    self.jobs[effect.name] = ""
                elif isinstance(effect, DeleteReservation):
                    assert self.reservations.pop(effect.name).phase != "Succeeded"
                elif isinstance(effect, DeleteJob):
                    self.jobs.pop(effect.name, None)
            if not step.effects and step.progress == progress:
                return progress
            progress = step.progress
        raise AssertionError("the drain does not settle")


def pod(uid: str) -> PodView:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": True}
    metadata = {"name": uid, "namespace": "default", "uid": uid, "ownerReferences": [owner]}
    return pod_view_from_json({"metadata": metadata, "spec": {"schedulerName": "koord-scheduler", "nodeName": "n"}})


@given(events=st.lists(EVENTS, max_size=12))
def test_a_finished_drain_leaves_nothing_behind(events: list[tuple[str, str]]) -> None:
    world = World(pods={uid: pod(uid) for uid in UIDS})
    progress = world.settle(DrainProgress())
    for what, uid in events:
        if progress.phase is not DrainPhase.RUNNING:
            break
        world.happen(what, uid)
        progress = world.settle(progress)
    if progress.phase is not DrainPhase.RUNNING:
        assert {each.phase for each in world.reservations.values()} <= {"Succeeded"}
        assert "" not in world.jobs.values()


def test_an_aborted_drain_deletes_also_the_job_that_the_mirror_has_not_brought_yet() -> None:
    uid = UIDS[0]
    world = World(pods={uid: pod(uid)}, state=ConfirmState.CONFIRMED)
    world.reservations[part_name("d", uid)] = ReservationStatus(phase="Available", node="m")
    step = look(world.view(), DrainProgress())
    assert any(isinstance(effect, CreateJob) for effect in step.effects)
    world.state = ConfirmState.ABORTED
    step = look(world.view(), step.progress)
    assert DeleteJob(part_name("d", uid)) in step.effects


@pytest.mark.parametrize("mode", CordonMode)
def test_a_drain_with_long_names_closes_and_opens_its_node_with_values_that_kubernetes_accepts(
    mode: CordonMode,
) -> None:
    name, node, uid = "drain-" + "n" * 80, "n" * 80, "p" * 100
    spec = DrainNodeSpec(node_name=node, cordon_policy=CordonPolicy(mode=mode))
    drain = DrainNode(metadata=ObjectMeta(name=name), spec=spec)
    closed, opened = cordon(drain), uncordon(node, name, spec.cordon_policy)
    values = [value or "" for value in closed.labels.values()] + [taint.value for taint in closed.taints]
    for effect in (CreateReservation("r", uid), CreateJob("r", uid, paused=False)):
        created = change_of(effect, drain, {uid: pod(uid)}, now=0.0, job_ttl=0.0)
        assert isinstance(created, CreateObject)
        values += created.document["metadata"]["labels"].values()
    for value in values:
        check_label_value(value)
    assert opened.removed_taints == closed.taints
    assert opened.labels.keys() == closed.labels.keys()
