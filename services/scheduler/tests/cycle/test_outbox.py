"""Order on each node, and gangs that go together or not at all."""

from hypothesis import given
from hypothesis import strategies as st
from koord_scheduler.domain.loop.commit.outbox import Batch, Outbox
from koord_scheduler.domain.loop.commit.work import Placement
from koordcore.events.envelope import BasedOn
from koordcore.events.node_ledger import PodOnNode
from koordcore.events.pod import PlacementExplanation

WHY = PlacementExplanation(nodes_considered=1, nodes_feasible=1, policy_version="test", based_on=BasedOn())


def place(uid: str, node: str) -> Placement:
    on_node = PodOnNode(
        uid=uid, namespace="d", name=uid, requests={}, qos="LS", kube_qos="Burstable", priority_class="koord-prod"
    )
    return Placement(
        uid=uid,
        node=node,
        namespace="d",
        name=uid,
        on_node=on_node,
        attempt=1,
        queued_at="",
        explanation=WHY,
        trigger="t",
    )


def uids(batch: Batch) -> set[str]:
    return {item.uid for item in batch.items}


def test_gang_waits_until_all_its_nodes_are_free() -> None:
    outbox = Outbox()
    outbox.put(place("single", "a"))
    first = outbox.take()
    outbox.put_together([place("m1", "a"), place("m2", "b")], "d/g")
    outbox.put(place("later", "b"))
    assert not outbox.has_ready()
    outbox.landed(first.works[0].node)
    gang = outbox.take()
    assert (gang.gang, uids(gang)) == ("d/g", {"m1", "m2"})
    assert not outbox.has_ready()
    for work in gang.works:
        outbox.landed(work.node)
    assert uids(outbox.take()) == {"later"}


def test_gang_is_taken_back_whole() -> None:
    outbox = Outbox()
    outbox.put_together([place("m1", "a"), place("m2", "b")], "d/g")
    outbox.put(place("later", "b"))
    assert {work.uid for work in outbox.withdraw_pod("a", "m1")} == {"m1", "m2"}
    assert uids(outbox.take()) == {"later"}
    assert len(outbox) == 0


NODES = "abc"
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(NODES)),
        st.tuples(st.just("gang"), st.text(NODES, min_size=2, max_size=4)),
        st.tuples(st.just("take"), st.just("")),
        st.tuples(st.just("land"), st.integers(0, 5)),
        st.tuples(st.just("withdraw"), st.sampled_from(NODES)),
    ),
    max_size=40,
)


@given(STEPS)
def test_nothing_is_lost_doubled_or_torn(steps: list[tuple[str, str | int]]) -> None:
    outbox, flying = Outbox(), list[str]()
    waiting: set[str] = set()
    gang_of: dict[str, str] = {}

    def check(batch: Batch) -> None:
        nodes = [work.node for work in batch.works]
        assert len(set(nodes)) == len(nodes), "a node occurs twice in a batch"
        assert not set(nodes) & set(flying), "a node's append overtakes another"
        found = uids(batch)
        assert found <= waiting
        for uid in found & gang_of.keys():
            assert {each for each, gang in gang_of.items() if gang == gang_of[uid]} <= found
        waiting.difference_update(found)
        flying.extend(nodes)

    for number, (step, value) in enumerate(steps):
        match step, value:
            case "put", str(node):
                outbox.put(place(f"p{number}", node))
                waiting.add(f"p{number}")
            case "gang", str(nodes):
                members = [place(f"p{number}-{index}", node) for index, node in enumerate(nodes)]
                outbox.put_together(members, f"d/g{number}")
                waiting.update(member.uid for member in members)
                gang_of.update({member.uid: f"g{number}" for member in members})
            case "take", _:
                check(outbox.take())
            case "land", int(index) if flying:
                outbox.landed(flying.pop(index % len(flying)))
            case "withdraw", str(node):
                back = {work.uid for work in outbox.withdraw(node)}
                assert back <= waiting
                waiting.difference_update(back)
            case _:
                pass
        assert len(outbox) == len(waiting)
    for _ in range(200):
        check(outbox.take())
        while flying:
            outbox.landed(flying.pop())
    assert not waiting, "work is stuck"
