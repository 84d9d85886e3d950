"""Positions of names that are gone are forgotten once they are folded, and never before."""

from itertools import count

import pytest
from koord_scheduler.domain.cluster.forgetting import Forgetting
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.ledger import Source
from koord_scheduler.domain.loop.commit.status_writes import StatusWrite, StatusWrites
from koord_scheduler.domain.loop.controllers import status_facts
from koord_scheduler.domain.loop.folding.log import fold
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.plugins.device.inventory import Layouts
from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.gang import GangPhaseChanged
from koordcore.events.log import EventSkipped
from koordcore.events.node_ledger import NodeResourcesReturned
from koordcore.events.objects import (
    CustomObjectDeleted,
    CustomObjectObserved,
    NodeSpecAdded,
    NodeSpecDeleted,
    custom_ref,
)
from koordcore.protocol import keys
from support.histories.objects import node as registered
from support.histories.recording import stored
from support.reachable import container_sizes
from support.scheduler.reservations import reservation, reserve, unreserve
from support.scheduler.scheduling import Scheduler, SmallLog, frameworks, node, pod, with_metadata

pytestmark = pytest.mark.slow

LIVES = 5_000


def test_a_table_is_searched_only_after_it_has_doubled() -> None:
    """Even if each search finds nothing to forget, as in a what-if run."""
    forgetting, searches = Forgetting(), 0
    for entries in range(20_000):
        if forgetting.is_due(entries):
            forgetting.searched(entries)
            searches += 1
    assert 0 < searches <= 5


def test_statuses_of_gangs_that_are_gone_are_forgotten_although_no_pod_is_deleted() -> None:
    state, seqs = SchedulerState(frameworks()), count(1)
    for life in range(LIVES):
        said = GangPhaseChanged(namespace="default", name=f"g{life}", phase="Finished")
        fold(state, stored(next(seqs), Draft(AggregateRef("gang", f"default=g{life}"), said, 0)))

    assert len(state.status.writes.seqs) <= 1025
    assert len(state.books.gang.published) <= 1025


def test_ledgers_of_nodes_that_left_are_forgotten_unless_they_have_pods_or_later_facts() -> None:
    state = SchedulerState(frameworks())
    ledgers = state.assumed.ledgers
    holder = PodInfo("u", state.nodes.demand({"cpu": 1}, {"cpu": 1}))
    ledgers.hold("kept", holder, Source.LOGGED)
    ledgers.advance("ahead", 10 * LIVES)
    seq = 0
    for life in range(LIVES):
        name = f"node-{life}"
        for ref, event in (
            (AggregateRef("nodespec", name), NodeSpecAdded(object=registered(name))),
            (AggregateRef("node", name), NodeResourcesReturned(pods=["x"])),
            (AggregateRef("nodespec", name), NodeSpecDeleted(name=name)),
        ):
            seq += 1
            fold(state, stored(seq, Draft(ref, event, 0)))

    known = dict(ledgers.items())
    assert {"kept", "ahead"} <= known.keys()
    assert len(known) <= 1024
    assert len(state.mirror.node_gone_by) <= 1024
    assert ledgers.seq("node-0") == 0
    assert ledgers.logged("kept") == ["u"]


def test_positions_of_statuses_are_kept_while_their_object_exists_or_they_are_not_folded_or_under_way() -> None:
    writes = StatusWrites()
    refs = [AggregateRef("gang", f"default=g{number}") for number in range(LIVES)]
    exists, waiting, later = refs[0], refs[1], refs[2]
    writes.put(StatusWrite(facts=((waiting, EventSkipped(seq=1, reason="r", operator="o")),), trigger="t"))
    for number, ref in enumerate(refs):
        writes.seqs[ref] = LIVES + 1 if ref == later else number + 1
        writes.prune(LIVES, lambda each: each == exists)

    assert {exists, waiting, later} <= writes.seqs.keys()
    assert len(writes.seqs) <= 1025


def test_layouts_of_devices_that_no_node_has_any_more_are_forgotten() -> None:
    layouts = Layouts()
    layouts.put(0, "kept")
    for life in range(LIVES):
        layouts.put(1, ("layout", life))
        assert layouts.of(0) != layouts.of(1), "no number is used again"
    assert len(layouts) <= 1025
    layouts.put(2, "kept")
    assert layouts.of(2) == layouts.of(0)


@pytest.mark.deep
def test_times_of_reservations_that_are_gone_are_forgotten_although_they_expire_in_years() -> None:
    log = SmallLog()
    state = SchedulerState(frameworks())
    for life in range(LIVES):
        reserve(log, reservation(f"r{life}", expires="2099-01-01T00:00:00Z", ttl=None))
        fold(state, log.events[-1])
        state.status.due.next_control.clear()
        status_facts(state, 0.0)
        unreserve(log, f"r{life}")
        fold(state, log.events[-1])
    sizes = container_sizes(state).items()  # of compiled classes, it sees nothing
    assert [path for path, size in sizes if path.endswith(("._planned", "._times")) and size > 1025] == []


def test_allocations_that_name_quotas_that_are_gone_are_forgotten() -> None:
    log = SmallLog()
    scheduler = Scheduler(log)
    log.add_node(node("n", cpu="64"))
    for life in range(50):
        name, uid = f"q{life}", f"p{life}"
        ref, metadata = custom_ref("elasticquotas", "default", name), {"namespace": "default", "name": name}
        log.say(ref.kind, ref.id, CustomObjectObserved(object={"metadata": metadata, "spec": {"max": {"cpu": "4"}}}))
        log.add_pod(with_metadata(pod(uid, {"cpu": "1"}), labels={keys.QUOTA_NAME: name}))
        scheduler.run()
        assert scheduler.state.pods[uid].node == "n"
        log.remove_pod(uid)
        log.say(ref.kind, ref.id, CustomObjectDeleted(kind="ElasticQuota", namespace="default", name=name))
        scheduler.run()
    sizes = container_sizes(scheduler.state).items()  # of compiled classes, it sees nothing
    assert [size for path, size in sizes if path.endswith("._charged") and size > 20] == []
