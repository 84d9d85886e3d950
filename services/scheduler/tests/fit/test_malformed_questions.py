"""Malformed questions: each is answered, or refused with the place that is wrong. None raises another error."""

import random

import msgspec
import pytest
from koord_scheduler.domain.fit.answering import answer_question
from koord_scheduler.domain.loop.folding.log import fold
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.shell.forking import in_fork_and_wait
from koordcore.protocol import keys
from koordcore.requests.fit import FitAnswer, FitRequest, PodSet
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from support.depth import repeats
from support.mutations import mutated
from support.scheduler.devices import CORE, RATIO, asking
from support.scheduler.reservations import reservation
from support.scheduler.scheduling import SmallLog, frameworks, node, pod, with_metadata

QUESTIONS = repeats(400)
POD_GROUP = {"kind": "PodGroup", "metadata": {"namespace": "default", "name": "g"}, "spec": {"minMember": 2}}


def valid() -> FitRequest:
    selector = {"matchLabels": {"app": "plain"}}
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    pods = [
        PodSet(pod=pod("plain", {"cpu": "1", "memory": "1Gi"}, topologySpreadConstraints=[spread]), replicas=2),
        PodSet(pod=with_metadata(pod("m", {"cpu": "1"}), labels={keys.POD_GROUP: "g"}), replicas=2),
        PodSet(pod=asking("gpu", {CORE: "50", RATIO: "50"})),
    ]
    return FitRequest(pods=pods, objects=[POD_GROUP, reservation("r")], leaving=["old"])


@pytest.mark.fuzz
def test_malformed_questions_are_answered_or_refused() -> None:
    log = SmallLog()
    log.add_node(node("a", cpu="8", labels={"zone": "1"}))
    log.add_pod(pod("old", {"cpu": "1"}))
    state = SchedulerState(frameworks())
    for stored in log.events:
        fold(state, stored)

    def never(_: FitRequest) -> FitAnswer:
        raise InvalidInput("a search", None, "finds_most")

    def outcome(request: FitRequest) -> bytes:
        try:
            return b"answered" if answer_question(state, request, 0.0, never).sets else b"empty"
        except InvalidInput as error:
            return b"refused" if error.path else b"nameless"

    rng, plain = random.Random(13), msgspec.to_builtins(valid())
    outcomes = {b"unreadable": 0, b"answered": 0, b"refused": 0, b"empty": 0, b"nameless": 0}
    assert in_fork_and_wait(lambda: outcome(valid())) == b"answered"
    for _ in range(QUESTIONS):
        try:
            request = codec.decode(codec.encode(mutated(rng, plain)), FitRequest)
        except (msgspec.MsgspecError, ValueError, OverflowError):
            outcomes[b"unreadable"] += 1
            continue
        outcomes[in_fork_and_wait(lambda request=request: outcome(request))] += 1
    assert not outcomes[b"nameless"]
    assert min(outcomes[b"unreadable"], outcomes[b"answered"], outcomes[b"refused"]) > QUESTIONS // 30, outcomes
