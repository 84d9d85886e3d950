"""ScheduleExplanations are answered from what is known of their pods, once and whenever it changes."""

from typing import Any

from koord_scheduler.domain.loop.controllers import next_status_due, status_facts
from koord_scheduler.domain.loop.explaining import hear
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.loop.status.schedule_explanations import PodOutlook, Question, ScheduleExplanations
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved, custom_ref
from koordcore.events.schedule_explanation import ScheduleExplanationComputed
from koordcore.protocol import keys
from support.reachable import container_sizes
from support.scheduler.scheduling import Scheduler, SmallLog, frameworks, node, pod, with_metadata

CREATED = 1_767_225_600.0
"""2026-01-01T00:00:00Z"""


def ask(log: SmallLog, key: str, name: str = "why", **spec: Any) -> None:
    ref = custom_ref("scheduleexplanations", "default", name)
    meta = {"namespace": "default", "name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    log.say(
        ref.kind, ref.id, CustomObjectObserved(object={"metadata": meta, "spec": {"questionObjectKey": key, **spec}})
    )


def look(scheduler: Scheduler, seconds: float) -> list[ScheduleExplanationComputed]:
    """One round of the leader: decide, hear what was said, say what is to be said."""
    now = CREATED + seconds
    scheduler.run(now)
    hear(scheduler.state, scheduler.explanations)
    scheduler.explanations.clear()
    status_writes = status_facts(scheduler.state, now)
    for write in status_writes:
        scheduler.state.status.writes.put(write)
    scheduler.run(now)
    said = [event for write in status_writes for _, event in write.facts]
    return [event for event in said if isinstance(event, ScheduleExplanationComputed)]


def full_cluster() -> SmallLog:
    log = SmallLog()
    log.add_node(node("a", cpu="2", labels={"zone": "x"}))
    log.add_node(node("b", cpu="2", labels={"zone": "y"}, unschedulable=True))
    log.add_node(node("c", cpu="2"))
    return log


def test_the_answer_is_the_latest_diagnosis() -> None:
    log = full_cluster()
    log.add_pod(pod("big", {"cpu": "8"}))
    ask(log, "default/big")
    scheduler = Scheduler(log)
    [said] = look(scheduler, 0.0)
    text = "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu."
    assert said.failed_message.startswith(text)
    assert (said.schedulable, said.schedulable_after_preemption, said.uid) == (False, False, "uid-why")
    [domain] = said.domains
    assert (domain.topology_domain, domain.scheduling.failed_message) == ("", text)
    assert [(each.plugin, each.nodes) for each in domain.scheduling.failures] == [
        ("NodeResourcesFit", ["a", "c"]),
        ("NodeUnschedulable", ["b"]),
    ]
    assert look(scheduler, 2.0) == []


def test_it_is_said_again_every_minute() -> None:
    log = full_cluster()
    log.add_pod(pod("big", {"cpu": "8"}))
    ask(log, "default/big")
    scheduler = Scheduler(log)
    [first] = look(scheduler, 0.0)
    assert next_status_due(scheduler.state) == CREATED + 60.0
    [second] = look(scheduler, 60.0)
    assert second.failed_message == first.failed_message
    assert second.last_update_time == "2026-01-01T00:01:00.000000Z"


def test_a_question_after_the_attempt_makes_the_pod_be_attempted_again() -> None:
    log = full_cluster()
    log.add_pod(pod("big", {"cpu": "8"}))
    scheduler = Scheduler(log)
    assert look(scheduler, 0.0) == []
    ask(log, "default/big")
    [unknown] = look(scheduler, 20.0)
    assert unknown.failed_message == "nothing has been attempted for default/big yet"
    [known] = look(scheduler, 21.0)
    assert known.failed_message.startswith("0/3 nodes")


def test_a_pod_with_a_node_is_schedulable() -> None:
    log = full_cluster()
    log.add_pod(pod("small", {"cpu": "1"}))
    log.add_pod(pod("big", {"cpu": "8"}))
    scheduler = Scheduler(log)
    look(scheduler, 0.0)
    ask(log, "default/small")
    [said] = look(scheduler, 1.0)
    assert (said.schedulable, said.schedulable_after_preemption, said.failed_message) == (True, True, "")
    [placement] = said.domains[0].scheduling.feasible
    assert (placement.name, placement.node) == ("small", scheduler.state.pods["small"].node)


def test_a_placement_is_news() -> None:
    log = full_cluster()
    log.add_pod(pod("big", {"cpu": "8"}))
    ask(log, "default/big")
    scheduler = Scheduler(log)
    look(scheduler, 0.0)
    log.add_node(node("d", cpu="16"))
    scheduler.run(CREATED + 5.0)
    scheduler.run(CREATED + 20.0)
    [said] = look(scheduler, 30.0)
    assert said.schedulable
    assert said.domains[0].scheduling.feasible[0].node == "d"


def test_a_job_is_schedulable_when_all_its_pods_are() -> None:
    log = full_cluster()
    for name, cpu in (("m0", "1"), ("m1", "8")):
        labelled = with_metadata(pod(name, {"cpu": cpu}), labels={keys.QUESTIONED_OBJECT_KEY: "job"})
        log.add_pod(labelled)
    ask(log, "default/job")
    scheduler = Scheduler(log)
    [said] = look(scheduler, 0.0)
    assert not said.schedulable
    log.remove_pod("m1")
    [later] = look(scheduler, 61.0)
    assert later.schedulable
    assert [each.name for each in later.domains[0].scheduling.feasible] == ["m0"]


def test_the_answer_is_split_by_a_label_of_the_nodes() -> None:
    log = full_cluster()
    log.add_pod(with_metadata(pod("big", {"cpu": "8"}), labels={keys.TOPOLOGY_KEY_TO_EXPLAIN: "zone"}))
    ask(log, "default/big")
    [said] = look(Scheduler(log), 0.0)
    assert [(each.topology_domain, each.scheduling.failed_message) for each in said.domains] == [
        ("", "0/1 nodes are available: 1 Insufficient cpu."),
        ("x", "0/1 nodes are available: 1 Insufficient cpu."),
        ("y", "0/1 nodes are available: 1 node(s) were unschedulable."),
    ]


def test_victims_and_their_node_are_named_in_its_domain() -> None:
    log = SmallLog()
    log.add_node(node("a", cpu="2", labels={"zone": "x"}))
    log.add_node(node("b", cpu="1", labels={"zone": "y"}))
    log.add_pod(pod("old", {"cpu": "2"}))
    scheduler = Scheduler(log)
    scheduler.run(CREATED)
    labels = {keys.TOPOLOGY_KEY_TO_EXPLAIN: "zone"}
    log.add_pod(with_metadata(pod("vip", {"cpu": "2"}, priority=9), labels=labels))
    ask(log, "default/vip")
    scheduler.follow()
    scheduler.state.queue.tick(CREATED)
    while scheduler.decide(CREATED) is not None:
        pass
    hear(scheduler.state, scheduler.explanations)
    facts = [event for write in status_facts(scheduler.state, CREATED) for _, event in write.facts]
    [said] = [event for event in facts if isinstance(event, ScheduleExplanationComputed)]
    assert (said.schedulable, said.schedulable_after_preemption) == (False, True)
    x, y = said.domains
    assert {node: [each.name for each in victims] for node, victims in x.victims.items()} == {"a": ["old"]}
    assert [each.node for each in x.preemption.feasible] == ["a"]
    assert (y.topology_domain, y.preemption.schedulable, y.victims) == ("y", False, {})


def test_an_object_expires_after_its_ttl_and_says_nothing_more() -> None:
    log = full_cluster()
    ask(log, "default/big", ttl="90s")
    ask(log, "default/big", "keep", ttl="0")
    scheduler = Scheduler(log)
    assert not any(said.expired for said in look(scheduler, 0.0))
    look(scheduler, 60.0)
    assert next_status_due(scheduler.state) == CREATED + 90.0
    assert [(said.name, said.expired) for said in look(scheduler, 90.0)] == [("why", True)]
    assert [said.name for said in look(scheduler, 130.0)] == ["keep"]


def test_a_new_object_of_the_same_name_is_answered_anew() -> None:
    log = full_cluster()
    ask(log, "default/big", ttl="1s")
    scheduler = Scheduler(log)
    assert look(scheduler, 5.0)[0].expired
    ref = custom_ref("scheduleexplanations", "default", "why")
    log.say(ref.kind, ref.id, CustomObjectDeleted(kind="ScheduleExplanation", namespace="default", name="why"))
    assert look(scheduler, 7.0) == []
    ask(log, "default/big")
    assert [said.expired for said in look(scheduler, 9.0)] == [False]


def test_a_status_written_to_the_object_is_no_news() -> None:
    log = full_cluster()
    ask(log, "default/big")
    scheduler = Scheduler(log)
    look(scheduler, 0.0)
    ref = custom_ref("scheduleexplanations", "default", "why")
    document = dict(scheduler.state.mirror.objects[ref.id].object)
    log.say(ref.kind, ref.id, CustomObjectObserved(object={**document, "status": {"failedMessage": "x"}}))
    assert look(scheduler, 2.0) == []


def test_what_cannot_be_asked_is_said() -> None:
    log = full_cluster()
    ask(log, "")
    [said] = look(Scheduler(log), 0.0)
    assert "questionObjectTemplate is not supported" in said.failed_message


def test_what_the_log_refuses_is_said_again() -> None:
    log = full_cluster()
    ask(log, "default/big")
    scheduler = Scheduler(log)
    scheduler.run(CREATED)
    for write in status_facts(scheduler.state, CREATED):
        scheduler.state.status.writes.put(write)
    scheduler.state.commits.withdraw_all()
    assert len(look(scheduler, 2.0)) == 1


def test_another_leader_keeps_an_answer_until_it_has_a_newer_one() -> None:
    log = full_cluster()
    log.add_pod(pod("big", {"cpu": "8"}))
    ask(log, "default/big")
    scheduler = Scheduler(log)
    [said] = look(scheduler, 0.0)
    other = Scheduler(log)
    other.state = SchedulerState(frameworks())
    load_state(other.state, b"".join(Picture(scheduler.state).pieces()))
    assert other.state.status.explanations.published == {"default=why": said}
    facts = [event for write in status_facts(other.state, CREATED + 1) for _, event in write.facts]
    [kept] = [event for event in facts if isinstance(event, ScheduleExplanationComputed)]
    assert kept.failed_message == said.failed_message


def test_standby_keeps_no_answers_about_pods_that_came_and_went() -> None:
    log = full_cluster()
    ask(log, "default/job")
    leader, standby = Scheduler(log), Scheduler(log)
    for number in range(50):
        log.add_pod(with_metadata(pod(f"m{number}", {"cpu": "1"}), labels={keys.QUESTIONED_OBJECT_KEY: "job"}))
        leader.run(CREATED)
        log.remove_pod(f"m{number}")
        leader.run(CREATED)
    standby.follow()
    sizes = container_sizes(standby.state.status.explanations)
    assert {path: size for path, size in sizes.items() if size > 5} == {}
    assert [said.domains[0].scheduling.feasible[0].name for said in look(standby, 0.0)] == ["m49"]


def test_expired_question_keeps_no_answers_about_pods_that_came_and_went() -> None:
    log = full_cluster()
    ask(log, "default/job", ttl="1s")
    scheduler = Scheduler(log)
    assert look(scheduler, 5.0)[0].expired
    for number in range(50):
        log.add_pod(with_metadata(pod(f"m{number}", {"cpu": "1"}), labels={keys.QUESTIONED_OBJECT_KEY: "job"}))
        look(scheduler, 6.0 + 2 * number)
        log.remove_pod(f"m{number}")
        look(scheduler, 7.0 + 2 * number)
    sizes = container_sizes(scheduler.state.status.explanations)
    assert {path: size for path, size in sizes.items() if size > 5} == {}


def test_answer_about_the_last_pod_stays_until_another_pod_has_one() -> None:
    book = ScheduleExplanations()
    question = Question(namespace="default", name="why", uid="uid-why", key="default/job", expires_at=None)
    book.put("default=why", question)

    def outlook(uid: str) -> PodOutlook:
        return PodOutlook(uid=uid, namespace="default", name=uid)

    def answered() -> list[str]:
        return [answer.uid for answer in book.answers_to("default/job")]

    for uid in ("a", "b"):
        book.answer("default/job", outlook(uid))
    book.pod_gone("a")
    assert answered() == ["b"]
    book.pod_gone("b")
    book.pod_gone("b")
    assert answered() == ["b"]
    book.answer("default/job", outlook("c"))
    assert answered() == ["c"]
    book.answer("default/job", outlook("d"))
    assert answered() == ["c", "d"]
    book.drop("default=why")
    for uid in ("c", "d"):
        book.pod_gone(uid)
    assert {path: size for path, size in container_sizes(book).items() if size} == {}


def test_answer_that_is_too_large_for_the_log_is_given_in_short_until_it_changes() -> None:
    log = full_cluster()
    log.add_pod(pod("big", {"cpu": "8"}))
    ask(log, "default/big")
    scheduler = Scheduler(log)
    scheduler.run(CREATED)
    hear(scheduler.state, scheduler.explanations)
    scheduler.explanations.clear()

    def refuse(seconds: float) -> ScheduleExplanationComputed:
        [write] = status_facts(scheduler.state, CREATED + seconds)
        scheduler.state.status.writes.put(write)
        taken = scheduler.state.status.next()
        assert taken is not None
        scheduler.state.status.refused(taken, for_good=True)
        [(_, event)] = write.facts
        assert isinstance(event, ScheduleExplanationComputed)
        return event

    whole = refuse(1.0)
    assert len(whole.domains) == 1
    assert scheduler.state.status.explanations.published == {}, "nobody got it"
    short = refuse(2.0)
    assert short.failed_message == f"The whole answer is too large for the log. {whole.failed_message}"
    assert short.domains == []
    assert status_facts(scheduler.state, CREATED + 3.0) == [], "there is no shorter one"
    log.add_node(node("d", cpu="16"))
    [changed] = look(scheduler, 30.0)
    assert changed.domains[0].scheduling.feasible[0].node == "d"
