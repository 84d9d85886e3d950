"""Gangs whose facts change while members wait or run: members finish, PodGroups change, others bind members."""

from typing import Any

import msgspec
import pytest
from koord_scheduler.domain.loop.cycle.deciding import gated
from koord_scheduler.domain.plugins.gang.controller import gang_phases
from koord_scheduler.domain.plugins.gang.summary import GangLine, gang_line
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koordcore.events import CATALOGUE
from koordcore.events.envelope import BasedOn
from koordcore.events.gang import GangPhaseChanged
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.events.pod import PlacementExplanation, PodPlaced
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata

GANG = "gang.scheduling.koordinator.sh"


def member(uid: str, cpu: str = "1", **annotations: str) -> Pod:
    return with_metadata(
        pod(uid, {"cpu": cpu}),
        labels={keys.POD_GROUP: "g"},
        annotations={f"{GANG}/{key.replace('_', '-')}": text for key, text in annotations.items()},
    )


def say_group(scheduler: Scheduler, least: int, gang: str = "g", **annotations: str) -> None:
    document: dict[str, Any] = {
        "metadata": {
            "namespace": "default",
            "name": gang,
            "annotations": {f"{GANG}/{key.replace('_', '-')}": text for key, text in annotations.items()},
        },
        "spec": {"minMember": least, "scheduleTimeoutSeconds": 600},
    }
    ref = custom_ref("podgroups", "default", gang)
    scheduler.log.say(ref.kind, ref.id, CustomObjectObserved(object=document))


def in_phase(one: Pod, phase: str, node_name: str = "") -> Pod:
    spec = msgspec.structs.replace(one.spec, node_name=node_name)
    return msgspec.structs.replace(one, spec=spec, status=msgspec.structs.replace(one.status, phase=phase))


def scheduler_of(*nodes: str, cpu: str = "4") -> Scheduler:
    scheduler = Scheduler(SmallLog())
    for name in nodes:
        scheduler.log.add_node(node(name, cpu=cpu))
    return scheduler


def add(scheduler: Scheduler, *pods: Pod, now: float = 0.0) -> None:
    for each in pods:
        scheduler.log.add_pod(each)
    scheduler.run(now)


def line(scheduler: Scheduler) -> GangLine:
    found = gang_line(scheduler.state.books.gangs, "default/g")
    assert found is not None
    return found


def phases(scheduler: Scheduler) -> tuple[str, int, int, int, int]:
    """Let the controller work, and return what the last status says."""
    for status in gang_phases(scheduler.state.books.gangs, 1.0):
        scheduler.log.say(status.ref.kind, status.ref.id, status.event)
    scheduler.run()
    events = [event for stored in scheduler.log.events if isinstance(event := CATALOGUE.read(stored), GangPhaseChanged)]
    last = events[-1]
    return last.phase, last.scheduled, last.running, last.succeeded, last.failed


@pytest.mark.parametrize("is_bound", [True, False], ids=["bound at the API server", "standalone"])
def test_finished_members_stay_bound_for_the_counters_and_the_phase_goes_forward(is_bound: bool) -> None:
    scheduler = scheduler_of("a")
    say_group(scheduler, 4)
    members = [member(f"m{number}") for number in range(4)]
    add(scheduler, *members)
    on = "a" if is_bound else ""
    add(scheduler, *(in_phase(each, "Running", on) for each in members))
    assert phases(scheduler)[1:] == (4, 4, 0, 0)
    add(scheduler, *(in_phase(each, "Succeeded", on) for each in members[:2]))
    assert (line(scheduler).pending, line(scheduler).bound) == (0, 4)
    assert phases(scheduler) == ("Running", 4, 2, 2, 0)
    add(scheduler, *(in_phase(each, "Succeeded", on) for each in members[2:]))
    assert phases(scheduler) == ("Finished", 4, 0, 4, 0)
    again = Scheduler(scheduler.log)
    load_state(again.state, b"".join(Picture(scheduler.state).pieces()))
    assert line(again) == line(scheduler)
    folded = Scheduler(scheduler.log)
    folded.follow()
    assert line(folded) == line(scheduler)


def test_replacement_of_a_waiting_and_running_gang_counts_finished_members() -> None:
    scheduler = scheduler_of("a")
    say_group(scheduler, 2, match_policy="waiting-and-running")
    add(scheduler, member("m0"), member("m1"))
    add(scheduler, in_phase(member("m0"), "Succeeded", "a"))
    scheduler.log.remove_pod("m1")
    add(scheduler, member("m2"))
    assert scheduler.state.pods["m2"].node == "a"


def waits_on_a(scheduler: Scheduler, **annotations: str) -> str:
    """A gang of two of which one waits with the only node; its uid."""
    say_group(scheduler, 2, mode="NonStrict", **annotations)
    add(scheduler, member("m0", cpu="3"), member("m1", cpu="3"))
    [waits] = scheduler.state.assumed.waiting.uids()
    gated(scheduler.state)
    return waits


def test_waiting_members_are_released_at_once_when_min_member_falls_to_their_number() -> None:
    scheduler = scheduler_of("a")
    waits = waits_on_a(scheduler)
    say_group(scheduler, 1, mode="NonStrict")
    scheduler.run(now=5.0)
    assert scheduler.state.pods[waits].node == "a"
    assert not len(scheduler.state.assumed.waiting)


def test_waiting_members_are_released_at_once_in_a_group_whose_first_gang_names_another_group() -> None:
    scheduler = scheduler_of("a")
    say_group(scheduler, 1, "f")
    say_group(scheduler, 2, mode="NonStrict", groups='["default/f", "default/g"]')
    add(scheduler, with_metadata(pod("f0", {"cpu": "1"}), labels={keys.POD_GROUP: "f"}))
    add(scheduler, member("m0", cpu="3"), member("m1", cpu="3"))
    [waits] = scheduler.state.assumed.waiting.uids()
    say_group(scheduler, 1, mode="NonStrict", groups='["default/f", "default/g"]')
    scheduler.run(now=5.0)
    assert scheduler.state.pods[waits].node == "a"


def of_first_gang(uid: str, cpu: str = "1", node_name: str = "") -> Pod:
    """A member of gang `f`, which names no group."""
    return with_metadata(pod(uid, {"cpu": cpu}, nodeName=node_name), labels={keys.POD_GROUP: "f"})


BOTH = '["default/f", "default/g"]'
"""Group of gang `g`. Gang `f` does not name `g`."""


def test_members_that_were_refused_for_a_gang_of_another_group_are_tried_when_it_has_its_members() -> None:
    scheduler = scheduler_of("a")
    say_group(scheduler, 1, "f")
    say_group(scheduler, 1, groups=BOTH)
    add(scheduler, member("m0"))
    assert scheduler.state.pods["m0"].node == ""
    add(scheduler, of_first_gang("f0"), now=1.0)
    assert scheduler.state.pods["m0"].node == "a"


def test_members_are_told_when_the_gang_of_another_group_that_they_need_goes() -> None:
    scheduler = scheduler_of("a")
    say_group(scheduler, 1, "f")
    say_group(scheduler, 2, groups=BOTH)
    add(scheduler, of_first_gang("f0"), member("m0"))
    [before] = gated(scheduler.state)
    scheduler.log.remove_pod("f0")
    scheduler.run(now=1.0)
    [after] = gated(scheduler.state)
    assert "default/f(0/1)" not in before.message
    assert "default/f(0/1)" in after.message


def waits_for_f(scheduler: Scheduler) -> None:
    """Gang `g` of one waits at Permit for gang `f` of two, whose second member waits for a node."""
    say_group(scheduler, 2, "f", mode="NonStrict")
    say_group(scheduler, 1, mode="NonStrict", groups=BOTH)
    add(scheduler, of_first_gang("f0"), of_first_gang("f1", "9"), member("m0"))
    assert sorted(scheduler.state.assumed.waiting.uids()) == ["f0", "m0"]


def test_waiting_members_stay_when_a_third_gang_that_names_theirs_is_ready() -> None:
    scheduler = scheduler_of("a")
    say_group(scheduler, 1, "i", groups='["default/g", "default/i"]')
    add(scheduler, with_metadata(pod("i0", {"cpu": "0"}, nodeName="a"), labels={keys.POD_GROUP: "i"}))
    waits_for_f(scheduler)
    assert scheduler.state.pods["m0"].node == ""


def test_waiting_members_are_released_when_the_gang_of_another_group_gets_its_nodes() -> None:
    scheduler = scheduler_of("a")
    waits_for_f(scheduler)
    scheduler.log.add_node(node("b", cpu="16"))
    scheduler.run(now=30.0)
    assert {uid: each.node for uid, each in scheduler.state.pods.items()} == {"f0": "a", "f1": "b", "m0": "a"}
    placed = [(stored.ref.id, CATALOGUE.read(stored)) for stored in scheduler.log.events]
    together = {uid: event.gang and event.gang.members for uid, event in placed if isinstance(event, PodPlaced)}
    assert together == {"f0": 2, "f1": 2, "m0": None}, "a gateway that waits for others of m0 would wait for ever"


def test_waiting_members_are_released_when_others_bind_the_gang_of_another_group() -> None:
    scheduler = scheduler_of("a")
    waits_for_f(scheduler)
    scheduler.log.add_node(node("b", cpu="16"))
    add(scheduler, of_first_gang("f1", "9", "b"), now=1.0)
    assert scheduler.state.pods["m0"].node == "a"


@pytest.mark.parametrize("policy", ["once-satisfied", "waiting-and-running"])
def test_waiting_member_is_released_when_another_active_scheduler_places_the_one_that_it_waits_for(policy: str) -> None:
    scheduler = scheduler_of("a")
    waits = waits_on_a(scheduler, match_policy=policy)
    [other] = {"m0", "m1"} - {waits}
    scheduler.log.add_node(node("b", cpu="0"))
    explained = PlacementExplanation(nodes_considered=1, nodes_feasible=1, policy_version="", based_on=BasedOn(1, 0))
    placed = PodPlaced(
        namespace="default",
        name=other,
        node="b",
        requests={"cpu": 3000},
        attempt=1,
        queued_at="2026-01-01T00:00:00Z",
        explanation=explained,
    )
    scheduler.log.say("pod", other, placed)
    scheduler.run()
    assert scheduler.state.pods[waits].node == "a"


@pytest.mark.parametrize("policy", ["once-satisfied", "waiting-and-running"])
def test_waiting_member_is_released_when_another_scheduler_binds_the_one_that_it_waits_for(policy: str) -> None:
    scheduler = scheduler_of("a")
    waits = waits_on_a(scheduler, match_policy=policy)
    [other] = {"m0", "m1"} - {waits}
    scheduler.log.add_node(node("b"))
    add(scheduler, in_phase(member(other, cpu="3"), "Running", "b"), now=0.0)
    assert scheduler.state.pods[waits].node == "a"


def test_raised_min_member_releases_nobody() -> None:
    scheduler = scheduler_of("a")
    waits = waits_on_a(scheduler)
    say_group(scheduler, 3, mode="NonStrict")
    scheduler.run(now=5.0)
    assert scheduler.state.assumed.waiting.uids() == [waits]
