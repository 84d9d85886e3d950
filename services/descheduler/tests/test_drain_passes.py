"""What a pass over the drains decides, without the service that carries it out."""

from types import NoneType
from typing import Any

from koord_descheduler.domain.drain import passes
from koord_descheduler.domain.drain.passes import DrainPass, DrainPolicy, Look
from koord_descheduler.domain.jobs.effects import FIRST_SECONDS, Refusals
from koord_descheduler.domain.view.building import ViewBuilder
from koordcore.events.drain import (
    DrainAborted,
    DrainConfirmed,
    DrainForgotten,
    DrainGroupChanged,
    DrainGroupForgotten,
    DrainGroupNodeJudged,
    DrainGroupStarted,
    DrainPodsChanged,
    DrainStarted,
    DrainWaiting,
)
from koordcore.events.envelope import AggregateRef, Draft, Event
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved, NodeSpecAdded, PodSpecAdded, custom_ref
from koordcore.protocol.drains import NODE_GROUP
from koordcore.protocol.objects import node_from_json, pod_from_json
from koordcore.requests.objects import ChangeNode, ChangeOutcome, ChangeResult, CreateObject, DeleteObject
from koordcore.state.drains import DrainGroupState
from koordcore.values.timestamps import unix_seconds
from support.histories.recording import stored

CREATED = "2026-05-04T10:00:00Z"
NOW = unix_seconds(CREATED) + 10
DONE, REFUSED = (ChangeOutcome(result=each, message="no") for each in (ChangeResult.DONE, ChangeResult.REFUSED))
POLICY = DrainPolicy(refusals=lambda pod, cluster: (), scheduler_names=frozenset({"koord-scheduler"}), job_ttl=0.0)
PLURALS = {"DrainNode": "drainnodes", "DrainNodeGroup": "drainnodegroups"}


class Cluster:
    """Nodes "a" and "b", and a pod on "b", in the fold of a descheduler."""

    def __init__(self) -> None:
        self.builder = ViewBuilder()
        self.refused = Refusals()
        for name in "ab":
            node = {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "64"}}}
            self.tell(AggregateRef("nodespec", name), NodeSpecAdded(object=node_from_json(node)))
        metadata = {"namespace": "d", "name": "p", "uid": "u"}
        spec = {"nodeName": "b", "schedulerName": "koord-scheduler"}
        self.tell(
            AggregateRef("podspec", "u"), PodSpecAdded(object=pod_from_json({"metadata": metadata, "spec": spec}))
        )

    def tell(self, ref: AggregateRef, event: Event) -> None:
        self.builder.apply(stored(self.builder.state.position + 1, Draft(ref, event, 0)))

    def write(self, name: str, kind: str = "DrainNode", uid: str = "", **spec: Any) -> None:
        metadata = {"name": name, "uid": uid or f"uid-{name}", "creationTimestamp": CREATED}
        document = {"kind": kind, "metadata": metadata, "spec": spec}
        self.tell(custom_ref(PLURALS[kind], "", name), CustomObjectObserved(object=document))

    def drain(self, name: str, **spec: Any) -> None:
        self.write(name, nodeName="b", migrationPolicy={"mode": "MigrateDirectly"}, **spec)

    def delete(self, name: str, kind: str = "DrainNode") -> None:
        self.tell(custom_ref(PLURALS[kind], "", name), CustomObjectDeleted(kind=kind, namespace="", name=name))

    def begin(self, now: float = NOW) -> DrainPass:
        return passes.begin(self.builder, POLICY, self.refused, now)

    def play(self, now: float = NOW, refused: type = NoneType) -> list[tuple[Look, Event | None]]:
        """Make a pass in which the changes of a type are refused; fold its facts. Return its looks with their facts."""
        found: list[tuple[Look, Event | None]] = []
        for ref, looking in passes.looks(self.begin(now)):
            look = looking()
            assert look.ref == ref
            event = look.concluded([REFUSED if isinstance(each, refused) else DONE for each in look.changes])
            if event is not None:
                self.tell(ref, event)
            found.append((look, event))
        return found

    def events(self, now: float = NOW, refused: type = NoneType) -> list[type | None]:
        return [None if event is None else type(event) for _, event in self.play(now, refused)]


def test_only_the_oldest_drain_of_a_node_begins() -> None:
    cluster = Cluster()
    cluster.drain("d")
    cluster.drain("e")
    (first, started), (second, waiting) = cluster.play()
    assert [type(each) for each in first.changes] == [ChangeNode, CreateObject]
    assert (type(started), first.object_uid) == (DrainStarted, "uid-d")
    assert (type(waiting), second.changes) == (DrainWaiting, [])


def test_the_confirmation_is_recorded_before_jobs_are_made() -> None:
    cluster = Cluster()
    cluster.drain("d")
    cluster.play()
    cluster.drain("d", confirmState="Confirmed")
    ((look, event),) = cluster.play()
    assert (look.changes, event) == ([], DrainConfirmed())


def test_a_creation_that_was_refused_is_not_tried_for_a_while() -> None:
    cluster = Cluster()
    cluster.drain("d")
    cluster.play(refused=CreateObject)
    assert [look.changes for look, _ in cluster.play(NOW + FIRST_SECONDS - 1)] == [[]]
    ((look, _),) = cluster.play(NOW + FIRST_SECONDS)
    assert [type(each) for each in look.changes] == [CreateObject]


def test_the_drain_of_a_deleted_object_is_taken_back_before_a_new_one_of_the_name_begins() -> None:
    cluster = Cluster()
    cluster.drain("d")
    cluster.play()
    cluster.write("d", uid="other", nodeName="b")
    ((look, event),) = cluster.play()
    assert (look.object_uid, type(event)) == ("uid-d", DrainAborted)
    assert cluster.events() == [DrainForgotten]
    assert cluster.events() == [DrainStarted]


def test_a_drain_that_ended_long_ago_is_deleted_and_not_again_after_a_refusal() -> None:
    cluster = Cluster()
    cluster.write("d", nodeName="none", ttl="1s")
    assert cluster.events() == [DrainAborted]
    late = NOW + 3600
    ((look, event),) = cluster.play(late, refused=DeleteObject)
    assert ([type(each) for each in look.changes], event) == ([DeleteObject], None)
    assert [look.changes for look, _ in cluster.play(late)] == [[]]
    assert [len(look.changes) for look, _ in cluster.play(late + FIRST_SECONDS)] == [1]


def test_facts_of_an_ended_drain_are_kept_while_its_group_plans_it() -> None:
    cluster = Cluster()
    cluster.write("g", "DrainNodeGroup", nodeSelector={})
    cluster.play()  # labels the nodes
    cluster.play()  # plans the first one
    (planned,) = [state.planning for state in cluster.builder.state.of_kind(DrainGroupState).values()]
    name = f"g-{planned}"
    cluster.write(name, nodeName="none")
    ref, looking = next(passes.looks(cluster.begin()))  # the group has not looked yet
    ended = looking().concluded([])
    assert isinstance(ended, DrainAborted)
    cluster.tell(ref, ended)
    cluster.delete(name)
    assert cluster.events() == [None, DrainGroupNodeJudged]
    assert DrainForgotten in cluster.events()


def test_a_deleted_group_is_aborted_and_then_forgotten() -> None:
    cluster = Cluster()
    cluster.write("g", "DrainNodeGroup", nodeSelector={})
    assert cluster.events() == [DrainGroupStarted]
    cluster.delete("g", "DrainNodeGroup")
    ((look, event),) = cluster.play()
    assert [each.labels for each in look.changes if isinstance(each, ChangeNode)] == [{NODE_GROUP: None}] * 2
    assert isinstance(event, DrainGroupChanged)
    assert event.phase == "Aborted"
    assert cluster.events() == [DrainGroupForgotten]


def test_nothing_is_recorded_of_a_drain_that_did_not_change() -> None:
    cluster = Cluster()
    cluster.drain("d")
    assert cluster.events() == [DrainStarted]
    assert cluster.events() in ([None], [DrainPodsChanged])
    assert cluster.events() == [None]
