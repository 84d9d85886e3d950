"""CPUs, NUMA zones and devices of Reservations: their owners get them, and nothing is given twice."""

import json
import random
from typing import Any

import pytest
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.plugins.numa.cpu_layout import cpus_in
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koordcore.events.objects import CustomObjectObserved
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.state import ClusterState
from koordcore.state.aggregates import NodeLedger, PodState
from koordcore.state.allocation_rules import broken_rules
from koordcore.values.timestamps import unix_seconds
from support.depth import seeds
from support.scheduler.devices import RATIO, asking, board, device, gpu
from support.scheduler.numa import add_numa_node, lsr_pod, node_topology, say_topology
from support.scheduler.reservations import CREATED, ReservingScheduler, fold_of, reservation, reserve, status, unreserve
from support.scheduler.scheduling import SmallLog, frameworks, node, with_metadata

T0 = unix_seconds(CREATED)
LSR = {keys.QOS_CLASS: "LSR"}


def cpu_reservation(name: str, cpus: int, *, policy: str = "", once: bool = False, **spec: Any) -> dict[str, Any]:
    """A reusable Reservation that binds CPUs; with `policy`, in NUMA zones."""
    annotations = {keys.NUMA_TOPOLOGY_SPEC: json.dumps({"numaTopologyPolicy": policy})} if policy else {}
    return reservation(
        name,
        {"cpu": str(cpus), "memory": "1Gi"},
        labels=LSR,
        annotations=annotations,
        template={"priority": 9500},
        allocateOnce=once,
        **spec,
    )


def web(pod: Pod, *, must: str = "") -> Pod:
    """The pod as an owner of the Reservations; `must` names the one that it has to use."""
    affinity = {keys.RESERVATION_AFFINITY: json.dumps({"name": must})} if must else {}
    meta = pod.metadata
    return with_metadata(pod, labels={**meta.labels, "app": "web"}, annotations={**meta.annotations, **affinity})


def cpus_of(log: SmallLog) -> dict[str, set[int]]:
    ledgers = fold_of(log).of_kind(NodeLedger).values()
    return {uid: set(entry.allocation.cpus) for ledger in ledgers for uid, entry in ledger.pods.items()}


def gpus_of(log: SmallLog) -> dict[str, set[int]]:
    ledgers = fold_of(log).of_kind(NodeLedger).values()
    return {
        uid: {each.minor for each in entry.allocation.devices if each.type == "gpu"}
        for ledger in ledgers
        for uid, entry in ledger.pods.items()
    }


def zones_of(log: SmallLog, uid: str) -> set[int]:
    return {zone.zone for zone in fold_of(log).of_kind(NodeLedger)["n"].pods[uid].allocation.zones}


def numa_cluster(**topology: Any) -> tuple[SmallLog, ReservingScheduler]:
    log = SmallLog()
    add_numa_node(log, "n", **topology)
    return log, ReservingScheduler(log)


def gpu_cluster(cards: list[Any]) -> tuple[SmallLog, ReservingScheduler]:
    log = SmallLog()
    log.add_node(node("n", cpu="64", memory="256Gi", more={RATIO: "800"}))
    log.say("customspec", "devices=n", CustomObjectObserved(object=device("n", cards)))
    return log, ReservingScheduler(log)


def test_the_owner_gets_the_cpus_of_its_reservation_and_others_do_not() -> None:
    log, scheduler = numa_cluster()
    log.add_pod(lsr_pod("before", 2))
    scheduler.live(T0)
    reserve(log, cpu_reservation("r", 4))
    scheduler.live(T0)
    log.add_pod(lsr_pod("other", 4))
    log.add_pod(web(lsr_pod("owner", 4)))
    scheduler.live(T0)
    cpus = cpus_of(log)
    assert cpus["owner"] == cpus["uid-r"]
    assert cpus["other"].isdisjoint(cpus["uid-r"] | cpus["before"])


def test_two_owners_share_the_cpus_and_a_third_takes_the_rest_from_the_node() -> None:
    log, scheduler = numa_cluster()
    reserve(log, cpu_reservation("r", 6))
    scheduler.live(T0)
    for uid in ("a", "b", "c"):
        log.add_pod(web(lsr_pod(uid, 4, bind="SpreadByPCPUs")))
        scheduler.live(T0)
    cpus = cpus_of(log)
    assert cpus["a"] < cpus["uid-r"]
    assert cpus["uid-r"] < cpus["a"] | cpus["b"], "the second owner takes what is left and the rest of the node"
    assert len(cpus["a"] | cpus["b"] | cpus["c"]) == 12


def test_a_full_node_has_cpus_only_for_the_owner() -> None:
    log, scheduler = numa_cluster()
    reserve(log, cpu_reservation("r", 4))
    log.add_pod(lsr_pod("busy", 12))
    scheduler.live(T0)
    log.add_pod(lsr_pod("other", 2))
    log.add_pod(web(lsr_pod("owner", 2)))
    scheduler.live(T0)
    cpus = cpus_of(log)
    assert "other" not in cpus
    assert cpus["owner"] < cpus["uid-r"]


def test_a_restricted_reservation_gives_no_cpus_of_the_node() -> None:
    log, scheduler = numa_cluster()
    reserve(log, cpu_reservation("r", 4, allocatePolicy="Restricted"))
    scheduler.live(T0)
    log.add_pod(web(lsr_pod("first", 3, bind="SpreadByPCPUs"), must="r"))
    scheduler.live(T0)
    log.add_pod(web(lsr_pod("second", 2, bind="SpreadByPCPUs"), must="r"))
    scheduler.live(T0)
    cpus = cpus_of(log)
    assert cpus["first"] < cpus["uid-r"]
    assert "second" not in cpus


def test_without_affinity_a_pod_that_fits_no_reservation_uses_the_node_alone() -> None:
    log, scheduler = numa_cluster()
    reserve(log, cpu_reservation("r", 4, allocatePolicy="Restricted"))
    scheduler.live(T0)
    log.add_pod(web(lsr_pod("big", 6)))
    scheduler.live(T0)
    cpus = cpus_of(log)
    assert cpus["big"].isdisjoint(cpus["uid-r"]), "reserved CPUs are not taken without using the Reservation"
    assert not status(log).owners


@pytest.mark.parametrize("policy", ["SingleNUMANode", "Restricted", "BestEffort"])
def test_the_owner_of_a_restricted_reservation_stays_in_its_zone(policy: str) -> None:
    log, scheduler = numa_cluster()
    log.add_pod(lsr_pod("busy", 4, policy="SingleNUMANode"))
    scheduler.live(T0)
    reserve(log, cpu_reservation("r", 4, policy=policy, allocatePolicy="Restricted"))
    scheduler.live(T0)
    log.add_pod(web(lsr_pod("owner", 4, policy=policy)))
    scheduler.live(T0)
    cpus = cpus_of(log)
    assert cpus["owner"] == cpus["uid-r"]
    assert zones_of(log, "owner") == zones_of(log, "uid-r")


def test_the_cpus_that_nobody_took_are_free_when_the_reservation_ends() -> None:
    log, scheduler = numa_cluster()
    reserve(log, cpu_reservation("r", 8))
    log.add_pod(lsr_pod("busy", 8))
    scheduler.live(T0)
    log.add_pod(web(lsr_pod("owner", 4)))
    scheduler.live(T0)
    owned = cpus_of(log)["owner"]
    unreserve(log, "r")
    scheduler.live(T0)
    log.add_pod(lsr_pod("later", 4))
    scheduler.live(T0)
    cpus = cpus_of(log)
    assert cpus["owner"] == owned
    assert len(cpus["owner"] | cpus["busy"] | cpus["later"]) == 16


def gpus(uid: str, percent: int, **more: Any) -> Pod:
    return asking(uid, {"cpu": "1", RATIO: str(percent)}, **more)


def gpu_reservation(name: str, percent: int, *, once: bool = False, **spec: Any) -> dict[str, Any]:
    return reservation(name, {"cpu": "1", RATIO: str(percent)}, allocateOnce=once, **spec)


def test_the_owner_gets_the_reserved_gpu_and_others_do_not() -> None:
    log, scheduler = gpu_cluster([gpu(minor) for minor in range(3)])
    log.add_pod(gpus("before", 100))
    scheduler.live(T0)
    reserve(log, gpu_reservation("r", 100))
    scheduler.live(T0)
    log.add_pod(gpus("other", 100))
    log.add_pod(gpus("waits", 100))
    log.add_pod(web(gpus("owner", 100)))
    scheduler.live(T0)
    found = gpus_of(log)
    assert found["owner"] == found["uid-r"]
    assert found["other"].isdisjoint(found["uid-r"] | found["before"])
    assert "waits" not in found


def test_owners_share_a_reserved_gpu() -> None:
    log, scheduler = gpu_cluster([gpu(minor) for minor in range(2)])
    reserve(log, gpu_reservation("r", 100))
    scheduler.live(T0)
    for uid in ("a", "b"):
        log.add_pod(web(gpus(uid, 50)))
        scheduler.live(T0)
    found = gpus_of(log)
    assert found["a"] == found["b"] == found["uid-r"]


def test_an_owner_takes_reserved_gpus_and_further_gpus_of_the_node() -> None:
    log, scheduler = gpu_cluster(board())
    reserve(log, gpu_reservation("r", 200))
    scheduler.live(T0)
    log.add_pod(web(gpus("owner", 400)))
    scheduler.live(T0)
    found = gpus_of(log)
    assert len(found["owner"]) == 4
    assert found["uid-r"] <= found["owner"]


def test_a_restricted_reservation_gives_no_gpu_of_the_node() -> None:
    log, scheduler = gpu_cluster([gpu(minor) for minor in range(3)])
    reserve(log, gpu_reservation("r", 100, allocatePolicy="Restricted"))
    scheduler.live(T0)
    log.add_pod(web(gpus("first", 60), must="r"))
    scheduler.live(T0)
    log.add_pod(web(gpus("second", 60), must="r"))
    scheduler.live(T0)
    found = gpus_of(log)
    assert found["first"] == found["uid-r"]
    assert "second" not in found


def test_the_score_of_the_devices_decides_between_two_reservations() -> None:
    log, scheduler = gpu_cluster([gpu(minor) for minor in range(4)])
    for name, percent in (("a", 100), ("b", 200)):
        reserve(log, gpu_reservation(name, percent))
        scheduler.live(T0)
    log.add_pod(web(gpus("owner", 100)))
    scheduler.live(T0)
    found = gpus_of(log)
    assert found["owner"] < found["uid-b"], "a: 100 for its amounts + 66 for its GPU; b: 75 + 100"


def ignoring(pod: Pod) -> Pod:
    """The pod with the label that lets it use the room of Reservations without becoming an owner."""
    return with_metadata(pod, labels={**pod.metadata.labels, keys.RESERVATION_IGNORED: "true"})


def test_a_pod_that_ignores_reservations_gets_reserved_cpus_and_the_owner_others() -> None:
    log, scheduler = numa_cluster()
    reserve(log, cpu_reservation("r", 4))
    log.add_pod(lsr_pod("busy", 10))
    scheduler.live(T0)
    log.add_pod(ignoring(lsr_pod("guest", 4)))
    scheduler.live(T0)
    cpus = cpus_of(log)
    assert cpus["guest"] & cpus["uid-r"], "only 2 of 16 CPUs are free besides the Reservation"
    log.add_pod(web(lsr_pod("owner", 2)))
    scheduler.live(T0)
    cpus = cpus_of(log)
    assert cpus["owner"].isdisjoint(cpus["guest"] | cpus["busy"])
    assert [owner.name for owner in status(log).owners] == ["owner"]
    assert broken_rules(fold_of(log)) == {}
    log.remove_pod("guest")
    scheduler.live(T0)
    row = scheduler.state.nodes.row("n")
    assert row is not None
    held = cpus_of(log)
    assert cpus_in(scheduler.state.books.numa.book(row).bound) == sorted(held["owner"] | held["busy"] | held["uid-r"])


def test_a_pod_that_ignores_reservations_gets_a_reserved_gpu() -> None:
    log, scheduler = gpu_cluster([gpu(0)])
    reserve(log, gpu_reservation("r", 100))
    scheduler.live(T0)
    log.add_pod(gpus("other", 100))
    log.add_pod(ignoring(gpus("guest", 100)))
    scheduler.live(T0)
    log.add_pod(web(gpus("owner", 50)))
    scheduler.live(T0)
    found = gpus_of(log)
    assert found["guest"] == found["uid-r"]
    assert found.keys() == {"uid-r", "guest"}, "the GPU is in use, so neither the owner nor another pod gets it"
    assert broken_rules(fold_of(log)) == {}
    log.remove_pod("guest")
    for _ in range(2):  # the pod is released, then the waiting pods are woken
        scheduler.live(T0 + 60.0)
    assert gpus_of(log)["owner"] == found["uid-r"]


def random_step(chance: random.Random, log: SmallLog, step: int, alive: list[str], promised: list[str]) -> None:
    """One change: a Reservation or a pod comes or goes."""
    policy = chance.choice(["", "", "SingleNUMANode", "Restricted"])
    once, rule = chance.random() < 0.4, chance.choice(["Aligned", "Restricted"])
    match chance.randrange(8):
        case 0:
            promised.append(f"r{step}")
            reserve(
                log,
                cpu_reservation(promised[-1], chance.choice([2, 4, 6]), policy=policy, once=once, allocatePolicy=rule),
            )
        case 1:
            promised.append(f"r{step}")
            reserve(log, gpu_reservation(promised[-1], chance.choice([50, 100, 200]), once=once, allocatePolicy=rule))
        case 2 if promised:
            unreserve(log, promised.pop(chance.randrange(len(promised))))
        case 3 if alive:
            log.remove_pod(alive.pop(chance.randrange(len(alive))))
        case _:
            uid = f"p{step}"
            alive.append(uid)
            made = (
                lsr_pod(uid, chance.choice([1, 2, 4]), policy=policy, bind="SpreadByPCPUs")
                if chance.random() < 0.5
                else gpus(uid, chance.choice([30, 50, 100, 200]))
            )
            log.add_pod(chance.choice([web(made), web(made), web(made), made, ignoring(made)]))


@pytest.mark.parametrize("seed", seeds(20))
def test_over_random_histories_nothing_is_given_twice_and_a_restart_knows_the_same(seed: int) -> None:
    chance, log = random.Random(seed), SmallLog()
    alive, promised = list[str](), list[str]()
    for name in ("n0", "n1"):
        log.add_node(node(name, cpu="16", memory="64Gi", more={RATIO: "800"}))
        say_topology(log, node_topology(name))
        cards = [gpu(minor, numa=minor // 2, pcie=str(minor)) for minor in range(4)]
        log.say("customspec", f"devices={name}", CustomObjectObserved(object=device(name, cards)))
    scheduler = ReservingScheduler(log)
    for step in range(40):
        random_step(chance, log, step, alive, promised)
        if chance.random() < 0.6:
            scheduler.live(T0 + 40.0 * step)
    scheduler.live(T0 + 5000.0)
    state = ClusterState()
    for stored in log.events:
        state.apply(stored)
        if stored.ref.kind == "node":
            assert broken_rules(state) == {}, f"at {stored.seq}"
    restored = SchedulerState(frameworks())
    load_state(restored, b"".join(Picture(scheduler.state).pieces()))
    for name in ("n0", "n1"):
        row, again = scheduler.state.nodes.row(name), restored.nodes.row(name)
        assert row is not None
        assert again is not None
        mine, theirs = scheduler.state.books.numa.book(row), restored.books.numa.book(again)
        assert (mine.pods, mine.bound, mine.allocated) == (theirs.pods, theirs.bound, theirs.allocated)
        columns, others = scheduler.state.books.numa.columns, restored.books.numa.columns
        assert columns.free[:, row].tolist() == others.free[:, again].tolist()
        assert columns.left["cpu"][:, row].tolist() == others.left["cpu"][:, again].tolist()
    assert any(each.node for each in state.of_kind(PodState).values())
