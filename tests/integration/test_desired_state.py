"""What an agent knows of its node: by pushes, by the bucket's value and after a restart it is the same.

The ledger says which pods are there, what they take and what they were given. Pod objects add what users change later
(labels and annotations), and the pods that somebody else bound; both are known as of the last read of the bucket.
"""

from dataclasses import replace
from typing import Literal, NamedTuple, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koord_agent.domain.node.desired import DesiredView, apply_push, view_of, with_last_fact
from koord_agent.domain.node.pods import AgentPod
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controllers.configuration import NodePolicies
from koord_manager.domain.controllers.desired_state import desired_node
from koordcore.events.envelope import HEADER_EXPECTED_LAST, Event, StoredEvent
from koordcore.events.gateway import PodBound
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken, pod_on_node
from koordcore.events.objects import NodeSpecAdded, PodSpecAdded, PodSpecChanged, PodSpecDeleted
from koordcore.ports.desired import DesiredNode, Push
from koordcore.protocol import keys
from koordcore.protocol.objects import Node
from koordcore.state.aggregates import NodeLedger, PodSpecState
from koordcore.values import codec
from koordcore.values.allocation import Allocation, ClaimBinding
from msgspec.structs import replace as replace_fields
from support.histories.objects import node, pod
from support.histories.recording import Recorder

NODE = "node-a"
Kind = Literal["submit", "place", "resize", "release", "label", "delete", "bound-by-others", "read", "restart"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Step(NamedTuple):
    """One step of a node's history, on one of a few pods."""

    kind: Kind
    pod: int
    variation: int = 0


steps = st.lists(st.builds(Step, st.sampled_from(KINDS), st.integers(0, 3), st.integers(0, 3)), max_size=30)


class World:
    """A log, a manager's view of it, and an agent that follows pushes and now and then reads the bucket."""

    def __init__(self) -> None:
        self.log = Recorder()
        self.manager = ManagerView()
        self._folded = 0
        self._pushed = 0
        self.write("nodespec", NODE, NodeSpecAdded(object=node(NODE)))
        self.agent = view_of(self.bucket())

    def bucket(self) -> DesiredNode:
        """The value that the manager writes now, as it comes back from the bucket."""
        value = desired_node(self.manager, NODE, NodePolicies().colocation(NODE, self.manager.node(NODE) or Node()))
        assert value is not None
        return codec.decode(codec.encode(value), DesiredNode)

    def read(self) -> None:
        """The agent reads the bucket, as it does every five minutes."""
        self.agent = view_of(self.bucket(), self.agent)

    def restart(self) -> None:
        """The agent starts anew from what it has kept on its disk; the pushes go on."""
        kept = codec.decode(codec.encode(self.agent.desired), DesiredNode)
        self.agent = view_of(kept)

    def do(self, step: Step) -> None:
        """One step; one that is not possible now does nothing."""
        uid = f"uid-{step.pod}"
        spec = self.log.state.of_kind(PodSpecState).get(uid)
        held = self.log.state.of_kind(NodeLedger).get(NODE, NodeLedger(seq=0)).pods
        match step.kind:
            case "read":
                self.read()
            case "restart":
                self.restart()
            case "submit" if spec is None:
                self.write("podspec", uid, PodSpecAdded(object=pod(step.pod, 500)))
            case "bound-by-others" if spec is None:
                bound = pod(step.pod, 700)
                bound.spec.node_name = NODE
                bound.metadata.annotations = {keys.RESOURCE_STATUS: f'{{"cpuset":"{step.variation}"}}'}
                self.write("podspec", uid, PodSpecAdded(object=bound))
            case "place" if spec is not None and uid not in held and not spec.object.spec.node_name:
                self._take(uid, step, 500)
            case "resize" if uid in held:
                self._take(uid, step, 500 + 100 * step.variation)
            case "release" if uid in held:
                self.write("node", NODE, NodeResourcesReturned(pods=[uid]))
            case "label" if spec is not None:
                changed = codec.decode(codec.encode(spec.object), type(spec.object))
                changed.metadata.labels[keys.SUB_PRIORITY] = str(step.variation)
                changed.metadata.annotations[keys.CPU_BURST] = f'{{"policy":"none","cpuBurstPercent":{step.variation}}}'
                self.write("podspec", uid, PodSpecChanged(object=changed))
            case "delete" if spec is not None:
                name = spec.object.metadata.name
                self.write("podspec", uid, PodSpecDeleted(namespace="default", name=name))
            case _:
                pass

    def ledger(self) -> list[StoredEvent]:
        """The facts of the node's ledger."""
        return [event for event in self.log.events if event.ref.kind == "node"]

    def last_of_ledger(self) -> StoredEvent | None:
        """The last fact of the node's ledger, with the position before it, as it comes from the log."""
        facts = self.ledger()
        if not facts:
            return None
        before = facts[-2].seq if len(facts) > 1 else 0
        return replace_fields(facts[-1], headers={**facts[-1].headers, HEADER_EXPECTED_LAST: str(before)})

    def _take(self, uid: str, step: Step, cpu_milli: int) -> None:
        wanted = pod(step.pod, cpu_milli)
        entry = pod_on_node(uid, wanted, Allocation(cpuset=str(step.pod), quota=f"q-{step.variation}"))
        self.write("node", NODE, NodeResourcesTaken(pods=[entry]))

    def write(self, kind: str, id_: str, event: Event) -> None:
        self.log.write(kind, id_, event)
        for stored in self.log.events[self._folded :]:
            self.manager.fold(stored)
            if stored.ref.kind == "node":
                after = apply_push(self.agent, Push(stored, self._pushed))
                assert after is not None
                self.agent, self._pushed = after, stored.seq
        self._folded = len(self.log.events)


@pytest.mark.parametrize("binds_pods", [True, False])
def test_the_bucket_tells_which_pods_wait_for_their_claims(binds_pods: bool) -> None:
    world = World()
    world.do(Step("submit", 0))
    claim = ClaimBinding(namespace="default", claim="data")
    taken = pod_on_node("uid-0", pod(0, 500), Allocation(volume_claims=(claim,)))
    world.write("node", NODE, NodeResourcesTaken(pods=[taken]))

    def unbound() -> list[str]:
        strategy = NodePolicies().colocation(NODE, node(NODE))
        value = desired_node(world.manager, NODE, strategy, binds_pods=binds_pods)
        assert value is not None
        return value.unbound

    assert unbound() == (["uid-0"] if binds_pods else [])
    world.write("podspec", "uid-0", PodBound(node=NODE, placement=1, bound_at="2026-01-01T00:00:00Z"))
    assert unbound() == []


def of_ledger(view: DesiredView) -> dict[str, AgentPod]:
    """The pods of the ledger, without what users change later."""
    return {
        entry.uid: replace(view.pods[entry.uid], labels={}, annotations={}, usage_profile="")
        for entry in view.desired.pods
    }


@given(steps)
def test_pushes_the_bucket_and_a_restart_agree(history: list[Step]) -> None:
    world = World()
    for step in history:
        world.do(step)

        read = view_of(world.bucket())
        ledger = world.log.state.of_kind(NodeLedger).get(NODE, NodeLedger(seq=0))
        assert world.agent.desired.pods == read.desired.pods == list(ledger.pods.values())
        assert of_ledger(world.agent) == of_ledger(read)
    world.restart()
    world.read()
    assert world.agent == view_of(world.bucket())


@given(steps, st.integers(0, 30))
def test_a_state_of_the_past_follows_the_ledger_or_is_known_to_miss_facts(history: list[Step], kept_at: int) -> None:
    """The agent was down from some step on, and no manager has written the bucket since."""
    world = World()
    kept = world.agent.desired
    for number, step in enumerate(history):
        world.do(step)
        kept = world.agent.desired if number < kept_at else kept

    view = with_last_fact(view_of(kept), world.last_of_ledger())

    ledger = world.log.state.of_kind(NodeLedger).get(NODE, NodeLedger(seq=0))
    missed = [event.seq for event in world.ledger() if event.seq > kept.as_of.get("node", 0)]
    assert view.misses_facts == (len(missed) > 1)
    assert view.misses_facts or view.desired.pods == list(ledger.pods.values())


def test_a_resized_pod_and_its_cpus_look_the_same_by_push_and_by_the_bucket() -> None:
    world = World()
    for step in (Step("submit", 1), Step("place", 1), Step("resize", 1, 3)):
        world.do(step)

    for view in (world.agent, view_of(world.bucket())):
        assert view.pods["uid-1"].requests["cpu"] == 800
        assert view.pods["uid-1"].cpuset == {1}


def test_what_users_change_later_is_known_from_the_next_read_on() -> None:
    world = World()
    for step in (Step("submit", 1), Step("place", 1), Step("label", 1, 2)):
        world.do(step)
    assert world.agent.pods["uid-1"].labels == {}

    world.read()
    assert world.agent.pods["uid-1"].labels == {keys.SUB_PRIORITY: "2"}
    assert keys.CPU_BURST in world.agent.pods["uid-1"].annotations

    world.do(Step("resize", 1, 1))
    assert world.agent.pods["uid-1"].labels == {keys.SUB_PRIORITY: "2"}, "the pod object wins over the ledger"


def test_a_pod_that_somebody_else_bound_is_known_with_its_cpus_from_the_next_read_on() -> None:
    world = World()
    world.do(Step("bound-by-others", 2, 3))
    assert world.agent.pods == {}

    world.read()
    assert world.agent.pods["uid-2"].cpuset == {3}
    assert world.agent.desired.pods == []
