"""GpuRepackHold: while a repack plan is under way, no other pod takes the GPUs of its nodes."""

from hypothesis import given
from hypothesis import strategies as st
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koordcore.events import CATALOGUE
from koordcore.events.envelope import Event, name_token
from koordcore.events.explanations import PodUnschedulable
from koordcore.events.migration import MigratedPod, RepackCommitted, RepackEnded, RepackMoved, RepackPlanned
from koordcore.events.objects import CustomObjectObserved
from koordcore.events.pod import PodPlaced
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from support.scheduler.devices import asking, device, gpu
from support.scheduler.reservations import reservation, reserve
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata

GPUS = 2
PRIORITY = 5
MORE = {"nvidia.com/gpu": str(GPUS), "koordinator.sh/gpu": "200", "koordinator.sh/gpu-core": "200"} | {
    "koordinator.sh/gpu-memory-ratio": "200",
    "koordinator.sh/gpu-memory": "160Gi",
}
MEMBER = MigratedPod(namespace="default", name="single", uid="single")


def cluster(*names: str) -> SmallLog:
    log = SmallLog()
    for name in names:
        log.add_node(node(name, cpu="100", memory="1Ti", more=MORE))
        document = device(name, [gpu(minor) for minor in range(GPUS)])
        log.say("customspec", f"devices={name_token(name)}", CustomObjectObserved(object=document))
    return log


def plan(*nodes: str, gang: str = "default/g") -> RepackPlanned:
    return RepackPlanned(gang=gang, members=[MEMBER], nodes=[*nodes], moves=[], gpus=GPUS, priority=PRIORITY)


def whole(uid: str, *, priority: int = PRIORITY, gang: str = "") -> Pod:
    """A pod that requests all GPUs of a node."""
    labels = {keys.POD_GROUP_NAME: gang, keys.POD_GROUP_MIN_AVAILABLE: "1"} if gang else {}
    return asking(uid, {"nvidia.com/gpu": str(GPUS)}, priority=priority, labels=labels)


def nodes_of(scheduler: Scheduler) -> dict[str, str]:
    return {uid: record.node for uid, record in scheduler.state.pods.items() if record.node}


def reasons(scheduler: Scheduler, uid: str) -> str:
    found = [each.event for each in scheduler.explanations if each.uid == uid]
    assert isinstance(found[-1], PodUnschedulable)
    return repr(found[-1])


def test_other_pods_leave_the_gpus_to_the_gang_and_are_told_the_plan() -> None:
    log = cluster("a", "b")
    log.say("repack", "plan-1", plan("a"))
    for each in (whole("first"), whole("second"), pod("plain", {"cpu": "1"}, nodeSelector={})):
        log.add_pod(each)
    scheduler = Scheduler(log)
    scheduler.run()
    assert {nodes_of(scheduler).get(uid) for uid in ("first", "second")} == {"b", None}
    waiting = "first" if "second" in nodes_of(scheduler) else "second"
    assert "repack plan plan-1 holds their GPUs for default/g" in reasons(scheduler, waiting)
    log.add_pod(whole("member", gang="g"))
    scheduler.run(now=100.0)
    assert nodes_of(scheduler)["member"] == "a"


def test_pod_without_a_gang_gets_the_gpus_that_are_held_for_it() -> None:
    log = cluster("a")
    log.say("repack", "plan-1", plan("a", gang="default/single"))
    log.add_pod(whole("other"))
    log.add_pod(whole("single"))
    scheduler = Scheduler(log)
    scheduler.run()
    assert nodes_of(scheduler) == {"single": "a"}


def test_pod_that_waited_for_held_gpus_is_attempted_when_the_plan_ends() -> None:
    log = cluster("a")
    log.say("repack", "plan-1", plan("a"))
    log.add_pod(whole("other"))
    scheduler = Scheduler(log)
    scheduler.run()
    assert nodes_of(scheduler) == {}
    for event in (RepackCommitted(reservations={}), RepackMoved()):
        log.say("repack", "plan-1", event)
        scheduler.run(now=100.0)
        assert nodes_of(scheduler) == {}
    log.say("repack", "plan-1", RepackEnded(result="done"))
    scheduler.run(now=200.0)
    assert nodes_of(scheduler) == {"other": "a"}


def test_pod_of_a_higher_priority_than_the_gang_takes_the_gpus() -> None:
    log = cluster("a")
    log.say("repack", "plan-1", plan("a"))
    log.add_pod(whole("other", priority=PRIORITY + 1))
    scheduler = Scheduler(log)
    scheduler.run()
    assert nodes_of(scheduler) == {"other": "a"}


def test_preemption_does_not_empty_a_held_node_for_another_pod() -> None:
    log = cluster("a")
    log.add_pod(whole("low", priority=0))
    scheduler = Scheduler(log)
    scheduler.run()
    log.say("repack", "plan-1", plan("a"))
    log.add_pod(whole("other"))
    scheduler.run(now=100.0)
    assert nodes_of(scheduler) == {"low": "a"}


def test_pod_uses_the_gpus_of_its_own_reservation_on_a_held_node() -> None:
    log = cluster("a")
    reserve(log, reservation(requests={"nvidia.com/gpu": str(GPUS)}))
    scheduler = Scheduler(log)
    scheduler.run()
    log.say("repack", "plan-1", plan("a"))
    log.add_pod(with_metadata(whole("owner"), labels={"app": "web"}))
    scheduler.run(now=100.0)
    assert nodes_of(scheduler)["owner"] == "a"


def test_restored_scheduler_holds_the_gpus() -> None:
    log = cluster("a")
    log.say("repack", "plan-1", plan("a"))
    scheduler = Scheduler(log)
    scheduler.run()
    restored = Scheduler(log)
    load_state(restored.state, b"".join(Picture(scheduler.state).pieces()))
    log.add_pod(whole("other"))
    restored.run()
    assert nodes_of(restored) == {}


HAPPENINGS = st.one_of(
    st.tuples(st.just("plan"), st.sampled_from("ab"), st.sampled_from("gh")),
    st.tuples(st.just("end"), st.sampled_from("ab"), st.just("")),
    st.tuples(st.just("pod"), st.sampled_from("0159"), st.sampled_from(["g", "h", ""])),
    st.tuples(st.just("gone"), st.just(""), st.just("")),
    st.tuples(st.just("restart"), st.just(""), st.just("")),
)


@given(st.lists(HAPPENINGS, max_size=25))
def test_no_other_pod_is_placed_on_held_gpus_in_any_order_of_events(happenings: list[tuple[str, str, str]]) -> None:
    log = cluster("a", "b")
    scheduler, pods, held = Scheduler(log), dict[str, Pod](), dict[str, str]()
    for number, (what, which, gang) in enumerate(happenings):
        match what:
            case "plan" if which not in held:
                held[which] = f"default/{gang}"
                event: Event = plan(which, gang=held[which])
                log.say("repack", f"plan-{which}", event)
            case "end" if held.pop(which, None) is not None:
                log.say("repack", f"plan-{which}", RepackEnded(result="done"))
            case "pod":
                pods[f"p{number}"] = whole(f"p{number}", priority=int(which), gang=gang)
                log.add_pod(pods[f"p{number}"])
            case "gone" if nodes_of(scheduler):
                log.remove_pod(min(nodes_of(scheduler)))
            case "restart":
                before, scheduler = scheduler, Scheduler(log)
                load_state(scheduler.state, b"".join(Picture(before.state).pieces()))
            case _:
                pass
        known = len(log.events)
        scheduler.run(now=100.0 * number)
        for stored in log.events[known:]:
            if stored.ref.kind != "pod" or stored.type != PodPlaced.__name__:
                continue
            placed = pods[stored.ref.id]
            decision = CATALOGUE.read(stored)  # the pod may have left the node since
            assert isinstance(decision, PodPlaced)
            owner = held.get(decision.node, "")
            own = f"default/{placed.metadata.labels.get(keys.POD_GROUP_NAME, '')}"
            assert not owner or own == owner or (placed.spec.priority or 0) > PRIORITY
