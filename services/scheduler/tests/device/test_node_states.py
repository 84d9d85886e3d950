"""Properties of DeviceShare over random clusters and random histories of pods that come and leave."""

from random import Random

import msgspec
import numpy as np
import pytest
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.columns.node_shape import node_shape
from koord_scheduler.domain.engine.frameworks import Frameworks
from koord_scheduler.domain.framework.cluster import Cluster
from koord_scheduler.domain.framework.plugin import Plugin
from koord_scheduler.domain.plugins.device.allocator import NodeDevices, Terms, allocate
from koord_scheduler.domain.plugins.device.columns import NAMES
from koord_scheduler.domain.plugins.device.node_states import NodeStates
from koord_scheduler.domain.plugins.device.one_share import Shares, part_of_one_gpu
from koord_scheduler.domain.plugins.device.picking import DeviceScoring
from koord_scheduler.domain.plugins.device.plugin import DeviceShare
from koord_scheduler.domain.plugins.device.pod_devices import PodDevices
from koord_scheduler.domain.plugins.device.refusal import Refusal
from koordcore.protocol.objects import Pod
from koordcore.state.allocation_rules import violations
from koordcore.values.allocation import AllocatedDevice, Allocation
from support.depth import seeds
from support.scheduler.devices import CORE, MEMORY, RATIO, asking, random_board, random_pod
from support.scheduler.scheduling import frameworks, node

SEEDS = seeds(12)


class _World:
    """A few nodes with devices, in the shipped profile."""

    def __init__(self, seed: int, nodes: int = 6) -> None:
        self.random = Random(seed)
        self.frameworks: Frameworks = frameworks()
        self.cluster: Cluster = self.frameworks.cluster
        self.plugin = _device_share(self.frameworks)
        self.names = [f"node-{index}" for index in range(nodes)]
        for name in self.names:
            self.put_device(name)
            one = node(name, cpu="1000", memory="4Ti")
            row, _ = self.cluster.nodes.put(name, node_shape(one))
            self.cluster.put_node(row, one, node_shape(one))
        self.running: dict[str, tuple[int, PodInfo]] = {}

    @property
    def states(self) -> NodeStates:
        return self.plugin.states

    def put_device(self, name: str) -> None:
        document = random_board(self.random)
        document["metadata"]["name"] = name
        self.cluster.put_object("devices", document)

    def asked(self, uid: str) -> tuple[PodInfo, PodDevices]:
        info = self.read(random_pod(self.random, uid))
        assert info.pod_class is not None
        asked = info.pod_class.aspects["DeviceShare"]
        assert isinstance(asked, PodDevices)
        return info, asked

    def read(self, pod: Pod) -> PodInfo:
        subject = self.cluster.pod_classes.read(pod).subject
        return PodInfo(pod.metadata.uid, subject.pod_class.demand, subject.pod_class, subject.kind, pod)

    def place(self, row: int, info: PodInfo, devices: tuple[AllocatedDevice, ...]) -> None:
        placed = msgspec.structs.replace(info, allocation=Allocation(devices=devices))
        self.cluster.accounting.take(row, placed)
        self.running[info.uid] = (row, placed)

    def remove(self, uid: str) -> None:
        row, placed = self.running.pop(uid)
        self.cluster.accounting.give(row, placed)


def _device_share(made: Frameworks) -> DeviceShare:
    plugins: list[Plugin] = [plugin for plugin in made.first.profile.filters if plugin.name == "DeviceShare"]
    (plugin,) = plugins
    assert isinstance(plugin, DeviceShare)
    return plugin


def _snapshot(states: NodeStates) -> tuple[object, ...]:
    columns = [
        (type_, column.left.tolist(), column.free.tolist(), column.total.tolist(), column.cards.tolist())
        for type_, column in states.columns.items()
    ]
    return columns, [_held(states, row) for row in range(len(states.has_devices))]


def _held(states: NodeStates, row: int) -> object:
    found = states.devices_of(row)
    return None if found is None else (found.use.amounts, found.use.functions, found.use.holders)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_columns_answer_as_the_exact_procedure_does(seed: int) -> None:
    world = _World(seed)
    rows = np.arange(len(world.names), dtype=np.intp)
    for number in range(150):
        info, asked = world.asked(f"pod-{number}")
        codes = world.states.codes(asked, rows)
        single = world.states.code_function(asked)
        fits: list[tuple[int, tuple[AllocatedDevice, ...]]] = []
        for row in range(len(rows)):
            found = _exhaustive(world, row, asked)
            assert int(codes[row]) == single(row), (number, row)
            if isinstance(found, Refusal):
                assert world.states.codes_of.reason(int(codes[row])) == found.reason, (number, row)
                assert bool(int(codes[row]) & 1) is not found.is_resolvable
            else:
                assert codes[row] == 0, (number, row, world.states.codes_of.reason(int(codes[row])))
                fits.append((row, found))
        _scores_agree(world, info, rows)
        if fits:
            world.place(fits[0][0], info, fits[0][1])
        if world.running and world.random.random() < 0.4:
            world.remove(world.random.choice(sorted(world.running)))
        if world.random.random() < 0.05:
            world.put_device(world.random.choice(world.names))


@pytest.mark.parametrize("is_least", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_part_of_a_gpu_comes_from_the_card_that_the_exact_procedure_chooses(seed: int, is_least: bool) -> None:
    world = _World(seed, nodes=4)
    scoring = DeviceScoring(((RATIO, 2), (CORE, 1), (MEMORY, 1)), is_least)
    shares = Shares(world.states.columns["gpu"], scoring)
    given = 0
    for number in range(80):
        info = world.read(asking(f"pod-{number}", _part(world.random)))
        assert info.pod_class is not None
        asked = info.pod_class.aspects["DeviceShare"]
        assert isinstance(asked, PodDevices)
        for row in range(len(world.names)):
            devices = world.states.devices_of(row)
            assert devices is not None
            scores = {minor: world.random.choice([-1, 50, 60]) for minor in devices.inventory.by_minor.get("gpu", ())}
            for given_scores in (scores, {}):
                terms = Terms(scoring=scoring, card_scores=given_scores)
                found = allocate(devices, asked, terms)
                card = shares.card(asked, devices.inventory, devices.use, row, given_scores)
                assert card is None if isinstance(found, Refusal) or part_of_one_gpu(asked) is None else card == found
            if row == number % 4 and not isinstance(found, Refusal):
                world.place(row, info, found)
                given += 1
        if world.running and world.random.random() < 0.3:
            world.remove(world.random.choice(sorted(world.running)))
        if world.random.random() < 0.05:
            world.put_device(world.random.choice(world.names))
    assert given >= 10


def _part(random: Random) -> dict[str, str]:
    """A part of one GPU, by its memory in percent, or now and then in bytes only."""
    if random.random() < 0.2:
        return {MEMORY: "3Gi"}
    core = {CORE: str(random.choice([1, 10, 40]))} if random.random() < 0.5 else {}
    return {RATIO: str(random.choice([5, 10, 33, 60])), **core}


def _exhaustive(world: _World, row: int, asked: PodDevices) -> tuple[AllocatedDevice, ...] | Refusal:
    devices = world.states.devices_of(row)
    assert devices is not None
    if asked.error:
        return Refusal(asked.error, is_resolvable=False)
    return allocate(devices, asked, Terms(scoring=world.states.scoring))


def _scores_agree(world: _World, info: PodInfo, rows: np.ndarray) -> None:
    assert info.pod_class is not None
    scores = world.plugin.score(info.pod_class, world.cluster.nodes, rows)
    single = world.plugin.row_score(info.pod_class, world.cluster.nodes)
    assert scores is not None
    assert single is not None
    assert scores.tolist() == [single(row) for row in rows.tolist()]


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_given_twice_and_releasing_all_returns_the_empty_state(seed: int) -> None:
    world = _World(seed)
    empty = _snapshot(world.states)
    for number in range(200):
        info, asked = world.asked(f"pod-{number}")
        row = world.random.randrange(len(world.names))
        devices = world.states.devices_of(row)
        assert devices is not None
        found = asked.error or allocate(devices, asked, Terms(scoring=world.states.scoring))
        if not isinstance(found, str | Refusal):
            world.place(row, info, found)
            holders = {uid: placed for uid, (at, placed) in world.running.items() if at == row}
            assert violations(holders) == []
            _memory_is_not_exceeded(devices)
        if world.running and world.random.random() < 0.45:
            world.remove(world.random.choice(sorted(world.running)))
    for uid in sorted(world.running, key=lambda uid: world.random.random()):
        world.remove(uid)
    assert _snapshot(world.states) == empty


def _memory_is_not_exceeded(node: NodeDevices) -> None:
    for cards in node.inventory.cards.values():
        for card in cards:
            used = node.use.used(card)
            assert all(used[name] <= total for name, total in card.total.items() if name in used), (card, used)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_state_depends_on_what_runs_and_not_on_the_order_in_which_it_came(seed: int) -> None:
    world = _World(seed)
    for number in range(120):
        info, asked = world.asked(f"pod-{number}")
        row = world.random.randrange(len(world.names))
        devices = world.states.devices_of(row)
        found = asked.error or allocate(devices, asked, Terms()) if devices is not None else ""
        if not isinstance(found, str | Refusal):
            world.place(row, info, found)
        if world.running and world.random.random() < 0.3:
            world.remove(world.random.choice(sorted(world.running)))
    again = _World(seed)
    for uid in sorted(world.running, reverse=True):
        row, placed = world.running[uid]
        assert placed.pod is not None
        again.place(row, again.read(placed.pod), placed.allocation.devices)
    for column in NAMES:
        assert np.array_equal(world.states.columns[column].left, again.states.columns[column].left)
        assert np.array_equal(world.states.columns[column].free, again.states.columns[column].free)
    assert [_held(world.states, row) for row in range(6)] == [_held(again.states, row) for row in range(6)]
