"""What becomes of pods that an agent evicted: asked for once, and gone where no API server is to do it."""

from datetime import UTC, datetime

import msgspec
from koord_manager.domain.cluster.view import AGAIN_SECONDS, ManagerView
from koord_manager.domain.controller_names import AGENT_EVICTION
from koord_manager.domain.controllers.agent_evictions import agent_requests
from koord_manager.domain.controllers.standalone.evictions import BlockedByBudget, Budgets, decide_eviction
from koordcore.events.catalogue import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, Origin, StoredEvent, seal
from koordcore.events.gateway import PodEvicted, PodEvictionFailed, PodEvictionRequested
from koordcore.events.nodestate import EvictedPod, PodsEvictedByAgent, PodsStopped
from koordcore.events.objects import PodSpecAdded, PodSpecDeleted
from koordcore.protocol.objects import ObjectMeta, Pod, PodSpec

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ORIGIN = Origin(causation_id="t", correlation_id="t", actor="t", occurred_at="2026-01-01T00:00:00.000000Z")


class Log:
    """Events folded into a view, one after the other."""

    def __init__(self) -> None:
        self.view = ManagerView()
        self._seq = 0

    def write(self, kind: str, id_: str, event: Event) -> None:
        ref = AggregateRef(kind, id_)
        self._seq += 1
        new = seal(Draft(ref, event, 0), ORIGIN, self._seq, CATALOGUE.of(type(event)).schema)
        self.view.fold(StoredEvent(self._seq, ref, new.headers, new.body))

    def take(self, drafts: list[Draft]) -> None:
        for draft in drafts:
            assert draft.expected_last == self.view.state.last_seq(draft.ref)
            self.write(draft.ref.kind, draft.ref.id, draft.event)


def test_an_evicted_pod_is_asked_for_once_and_without_an_api_server_its_object_goes() -> None:
    log = Log()
    meta = ObjectMeta(name="crunch", namespace="default", uid="u")
    log.write("podspec", "u", PodSpecAdded(object=Pod(metadata=meta, spec=PodSpec(node_name="n.1"))))
    victim = EvictedPod(uid="u", namespace="default", name="crunch", ended=True)
    fact = PodsEvictedByAgent(feature="BEMemoryEvict", pods=[victim], reason="memory is short")
    log.write("nodestate", "n_1", fact)

    (request,) = agent_requests(log.view, "n_1")
    assert isinstance(request.event, PodEvictionRequested)
    assert (request.event.node, request.event.initiator) == ("n.1", "agent")
    assert "memory is short" in request.event.message
    log.take([request])
    assert agent_requests(log.view, "n_1") == [], "asked for already"

    group = decide_eviction(log.view, Budgets(), "u", NOW)
    assert not isinstance(group, BlockedByBudget)
    assert [type(draft.event) for draft in group] == [PodSpecDeleted, PodEvicted]
    log.take(group)
    assert decide_eviction(log.view, Budgets(), "u", NOW) == []
    assert agent_requests(log.view, "n_1") == [], "the pod is gone, whatever its agent still says"
    log.write("nodestate", "n_1", PodsStopped(pods=["u"]))


def test_an_agent_cannot_let_a_pod_of_another_node_be_evicted() -> None:
    log = Log()
    for uid, node in (("theirs", "n.2"), ("waiting", "")):
        pod = Pod(metadata=ObjectMeta(name=uid, namespace="default", uid=uid), spec=PodSpec(node_name=node))
        log.write("podspec", uid, PodSpecAdded(object=pod))
    victims = [EvictedPod(uid=uid, namespace="default", name=uid) for uid in ("theirs", "waiting")]
    log.write("nodestate", "n_1", PodsEvictedByAgent(feature="CPUEvict", pods=victims, reason="busy"))
    assert agent_requests(log.view, "n_1") == []


def test_a_request_that_the_api_server_refuses_is_repeated_after_a_minute() -> None:
    log = Log()
    queue = log.view.queue
    bound = Pod(metadata=ObjectMeta(name="crunch", namespace="default", uid="u"), spec=PodSpec(node_name="n.1"))
    log.write("podspec", "u", PodSpecAdded(object=bound))
    victim = EvictedPod(uid="u", namespace="default", name="crunch")
    log.write("nodestate", "n_1", PodsEvictedByAgent(feature="CPUEvict", pods=[victim], reason="busy"))
    for now in (0.0, AGAIN_SECONDS):
        queue.begin(now)
        assert queue.take(AGENT_EVICTION) == ["n_1"]
        log.take(agent_requests(log.view, "n_1"))
        log.write("eviction", "u", PodEvictionFailed(reason="Forbidden", message="a webhook denies it"))
        assert queue.take(AGENT_EVICTION) == []


def test_a_pod_that_the_api_server_removes_already_is_not_asked_for_again() -> None:
    log = Log()
    meta = ObjectMeta(name="crunch", namespace="default", uid="u")
    leaving = msgspec.structs.replace(meta, deletion_timestamp="2026-01-01T00:00:00Z")
    log.write("podspec", "u", PodSpecAdded(object=Pod(metadata=leaving)))
    victim = EvictedPod(uid="u", namespace="default", name="crunch")
    log.write("nodestate", "n_1", PodsEvictedByAgent(feature="CPUEvict", pods=[victim], reason="busy"))
    assert agent_requests(log.view, "n_1") == []


def test_a_request_for_a_pod_that_is_gone_is_answered() -> None:
    log = Log()
    log.write("eviction", "u", PodEvictionRequested(namespace="d", name="p", initiator="scheduler", reason="Preempted"))
    decision = decide_eviction(log.view, Budgets(), "u", NOW)
    assert not isinstance(decision, BlockedByBudget)
    (answer,) = decision
    assert answer.event == PodEvicted(gone=True)
