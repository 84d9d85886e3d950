"""DeviceShare's scores by GPU fragmentation: the choices are those of the policies."""

from datetime import datetime
from random import Random

import msgspec
import numpy as np
import pytest
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.columns.node_shape import node_shape
from koord_scheduler.domain.engine.frameworks import Frameworks
from koord_scheduler.domain.framework.cluster import Cluster
from koord_scheduler.domain.framework.extension_points import ROW_SCORE
from koord_scheduler.domain.framework.plugin import Plugin
from koord_scheduler.domain.loop.controllers import status_facts
from koord_scheduler.domain.plugins.device.allocator import Terms, allocate
from koord_scheduler.domain.plugins.device.fragmentation import FragmentationScores
from koord_scheduler.domain.plugins.device.node_scores import device_scores
from koord_scheduler.domain.plugins.device.plugin import DeviceShare
from koord_scheduler.domain.plugins.device.pod_devices import PodDevices
from koord_scheduler.domain.plugins.device.refusal import Refusal
from koordcore.events import CATALOGUE
from koordcore.events.cluster import TypicalPodsLearned
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.events.pod import PodPlaced
from koordcore.fragmentation.arrivals import Arrivals, Placed
from koordcore.fragmentation.nodes import NodeGpus, columns_of
from koordcore.fragmentation.pods import GpuPod, TypicalPod, gpu_models, requests_of, typical_pods
from koordcore.fragmentation.policies import PolicyName, policy_of
from koordcore.protocol import keys
from koordcore.protocol.objects import Node, Pod
from koordcore.values.allocation import Allocation
from support.depth import seeds
from support.scheduler.devices import CORE, RATIO, asking, board, device, gpu
from support.scheduler.scheduling import Scheduler, SmallLog, frameworks, node, pod

KINDS = [
    GpuPod(3000, 810, 1),
    GpuPod(8000, 470, 1),
    GpuPod(4000, 320, 1),
    GpuPod(2000, 160, 1),
    GpuPod(11000, 1000, 1),
    GpuPod(16000, 1000, 2),
    GpuPod(12000, 0, 0),
]
NODES = [NodeGpus(32000, (1000,) * 4, "G2")] * 4 + [NodeGpus(64000, (1000,) * 2, "T4")] * 3
TYPICAL = typical_pods([*KINDS * 3, *KINDS[:5] * 4], 100)


ENABLED = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  plugins:
    filter: {{enabled: [{{name: DeviceShare}}]}}
    score: {{enabled: [{{name: DeviceShare}}], disabled: [{{name: "*"}}]}}
    reserve: {{enabled: [{{name: DeviceShare}}]}}
  pluginConfig:
  - name: DeviceShare
    args: {args}
"""


def _enabled(weight: int, policy: str = "FGD") -> str:
    listed = [
        f"{{milliCPU: {pod.milli_cpu}, gpuMilli: {pod.gpu_milli}, numGPU: {pod.num_gpu}, frequency: {frequency}}}"
        for pod, frequency in TYPICAL
    ]
    args = f"enabled: true, policy: {policy}, weight: {weight}, typicalPods: [{', '.join(listed)}]"
    return ENABLED.format(args=f"{{gpuFragmentation: {{{args}}}}}")


def _plugin(made: Frameworks) -> DeviceShare:
    plugins: list[Plugin] = [plugin for plugin in made.first.profile.filters if plugin.name == "DeviceShare"]
    (plugin,) = plugins
    assert isinstance(plugin, DeviceShare)
    return plugin


def _pod(uid: str, wanted: GpuPod) -> Pod:
    requests = {"cpu": f"{wanted.milli_cpu}m"}
    if wanted.is_share:
        requests |= {CORE: str(wanted.gpu_milli // 10), RATIO: str(wanted.gpu_milli // 10)}
    elif wanted.num_gpu:
        requests["nvidia.com/gpu"] = str(wanted.num_gpu)
    return asking(uid, requests)


def _node(index: int, each: NodeGpus) -> Node:
    count = len(each.gpu_milli_left)
    more = {CORE: f"{count}00", RATIO: f"{count}00", "nvidia.com/gpu": str(count)}
    cpu = f"{each.milli_cpu_left}m"
    return node(f"node-{index}", cpu=cpu, memory="4Ti", labels={keys.GPU_MODEL: each.gpu_model}, more=more)


class _World:
    """Nodes with GPUs, and the plugin's view of them."""

    def __init__(self, nodes: list[NodeGpus], *, with_tree: bool = False, configuration: str = "") -> None:
        made = frameworks(configuration)
        self.cluster: Cluster = made.cluster
        self.plugin = _plugin(made)
        for index, each in enumerate(nodes):
            name = f"node-{index}"
            cards = board(nics=False) if with_tree else [gpu(minor) for minor in range(len(each.gpu_milli_left))]
            self.cluster.put_object("devices", device(name, cards))
            one = _node(index, each)
            row, _ = self.cluster.nodes.put(name, node_shape(one))
            self.cluster.put_node(row, one, node_shape(one))
        self.rows = np.arange(len(nodes), dtype=np.intp)

    def read(self, uid: str, wanted: GpuPod) -> tuple[PodInfo, PodDevices | None]:
        asked = _pod(uid, wanted)
        subject = self.cluster.pod_classes.read(asked).subject
        info = PodInfo(uid, subject.pod_class.demand, subject.pod_class, subject.kind, asked)
        devices = subject.pod_class.aspects.get("DeviceShare")
        return info, devices if isinstance(devices, PodDevices) else None

    def scores(self, policy: str, typical: list[TypicalPod] = TYPICAL) -> FragmentationScores:
        name = "FGD" if policy == "FGD" else "ExpectedFilling"
        return FragmentationScores(self.cluster.nodes, self.plugin.states, typical, name, 1)

    def place(self, scores: FragmentationScores, number: int, wanted: GpuPod) -> Placed | None:
        """Place the pod on the first node with the best score, as Reserve does."""
        info, asked = self.read(f"pod-{number}", wanted)
        nodes = self.cluster.nodes
        has_room = nodes.free[nodes.column("cpu")][self.rows] >= wanted.milli_cpu
        if asked is not None:
            has_room &= self.plugin.states.codes(asked, self.rows) == 0
        rows = self.rows[has_room]
        if not len(rows):
            return None
        row = int(rows[scores.node_scores(wanted.milli_cpu, asked, rows).argmax()])
        devices = self.plugin.states.devices_of(row)
        assert devices is not None
        given = ()
        if asked is not None:
            cards = scores.card_scores(wanted.milli_cpu, asked, row)
            found = allocate(devices, asked, Terms(scoring=self.plugin.states.scoring, card_scores=cards))
            assert not isinstance(found, Refusal)
            given = found
        self.cluster.accounting.take(row, msgspec.structs.replace(info, allocation=Allocation(devices=given)))
        return Placed(row, tuple(sorted(each.minor for each in given)))


@pytest.mark.parametrize("name", [PolicyName.FGD, PolicyName.EXPECTED_FILLING])
@pytest.mark.parametrize("seed", seeds(4))
def test_the_plugin_chooses_as_the_policy_does(name: PolicyName, seed: int) -> None:
    world, random = _World(NODES), Random(seed)
    columns = columns_of(NODES)
    expected = Arrivals(columns, np.full(len(NODES), 1 << 40), policy_of(name, TYPICAL, columns.models))
    scores = world.scores(name)
    placed = 0
    for number in range(80):
        wanted = random.choice(KINDS)
        found = world.place(scores, number, wanted)
        assert found == expected.place(wanted, 0), number
        placed += found is not None
    assert 20 < placed < 80


def test_scopes_keep_precedence_over_the_score_of_a_card() -> None:
    """Switch 0 is in use, so a share goes there, although a card of another switch has the better score."""
    world = _World([NodeGpus(90_000, (1000,) * 8, "G2")], with_tree=True)
    scores = world.scores("FGD")
    first = world.place(scores, 0, GpuPod(1000, 600, 1))
    assert first == Placed(0, (0,))
    _, asked = world.read("pod-1", GpuPod(1000, 500, 1))
    assert asked is not None
    cards = scores.card_scores(1000, asked, 0)
    chosen = world.place(scores, 1, GpuPod(1000, 500, 1))
    assert chosen is not None
    assert chosen.gpus == (1,)
    assert cards[0] == -1
    assert cards[1] == max(cards.values())


def test_the_node_score_is_that_of_the_card_that_the_allocator_chooses() -> None:
    world = _World([NodeGpus(90_000, (1000,) * 8, "G2")], with_tree=True)
    scores = world.scores("ExpectedFilling")
    for number, wanted in enumerate([GpuPod(1000, 600, 1), GpuPod(1000, 300, 1), GpuPod(1000, 810, 1)]):
        _, asked = world.read(f"probe-{number}", wanted)
        assert asked is not None
        cards = scores.card_scores(wanted.milli_cpu, asked, 0)
        score = int(scores.node_scores(wanted.milli_cpu, asked, world.rows)[0])
        placed = world.place(scores, number, wanted)
        assert placed is not None
        assert score == cards[placed.gpus[0]]


def test_unhealthy_cards_have_nothing_left() -> None:
    world = _World([NodeGpus(90_000, (1000, 1000), "G2")])
    _, asked = world.read("pod", GpuPod(1000, 500, 1))
    assert asked is not None
    world.cluster.put_object("devices", device("node-0", [gpu(0, healthy=False), gpu(1)]))
    cards = world.scores("FGD").card_scores(1000, asked, 0)
    assert cards[0] == -1
    assert cards[1] >= 0


def test_the_plugin_weighs_both_scores_and_scores_every_pod() -> None:
    world = _World(NODES, configuration=_enabled(3))
    scores = world.scores("FGD")
    for number, wanted in enumerate(KINDS):
        info, asked = world.read(f"pod-{number}", wanted)
        assert info.pod_class is not None
        assert info.pod is not None
        assert world.plugin.concerns(info.pod)
        found = world.plugin.score(info.pod_class, world.cluster.nodes, world.rows)
        assert found is not None
        assert ROW_SCORE not in world.plugin.extension_points, "these scores need arrays"
        own = np.zeros(len(NODES)) if asked is None else device_scores(world.plugin.states, asked, world.rows)
        expected = (own + 3 * scores.node_scores(wanted.milli_cpu, asked, world.rows)) // 4
        assert found.tolist() == expected.tolist()
        world.place(scores, number, wanted)


def test_without_the_argument_pods_without_devices_do_not_concern_the_plugin() -> None:
    world = _World(NODES)
    info, _ = world.read("pod", KINDS[-1])
    assert info.pod_class is not None
    assert info.pod is not None
    assert not world.plugin.concerns(info.pod)
    assert world.plugin.score(info.pod_class, world.cluster.nodes, world.rows) is None


@pytest.mark.parametrize("policy", ["FGD", "ExpectedFilling"])
def test_the_scheduler_places_on_a_node_with_the_best_score_and_records_the_best_card(policy: str) -> None:
    log, random = SmallLog(), Random(5)
    scheduler = Scheduler(log, _enabled(1000, policy))
    for index, each in enumerate(NODES):
        cards = [gpu(minor) for minor in range(len(each.gpu_milli_left))]
        log.say(
            "customspec",
            custom_ref("devices", "", f"node-{index}").id,
            CustomObjectObserved(object=device(f"node-{index}", cards)),
        )
        log.add_node(_node(index, each))
    scheduler.follow()
    plugin = _plugin(scheduler.state.frameworks)
    nodes = scheduler.state.frameworks.cluster.nodes
    rows = np.arange(len(NODES), dtype=np.intp)
    placed = 0
    for number in range(60):
        wanted = random.choice(KINDS)
        read = scheduler.state.frameworks.cluster.pod_classes.read(_pod(f"pod-{number}", wanted)).subject.pod_class
        has_room = nodes.free[nodes.column("cpu")][rows] >= wanted.milli_cpu
        codes = plugin.filter(read, nodes, rows)
        feasible = rows[has_room if codes is None else has_room & (codes == 0)]
        scores = plugin.score(read, nodes, feasible)
        assert scores is not None
        log.add_pod(_pod(f"pod-{number}", wanted))
        scheduler.run()
        found = [event for event in map(CATALOGUE.read, log.events) if isinstance(event, PodPlaced)]
        if not len(feasible):
            assert len(found) == placed
            continue
        placed += 1
        assert len(found) == placed, scheduler.explanations[-1]
        row = nodes.row(found[-1].node)
        assert scores[feasible.tolist().index(row)] == scores.max()
        assert len(found[-1].allocation.devices) == wanted.num_gpu
    assert 20 < placed < 60


LEARNING = ENABLED.format(args="{gpuFragmentation: {enabled: true, learning: {window: 1h, refreshInterval: 10m}}}")


def _created(log: SmallLog, scheduler: Scheduler, count: int, wanted: GpuPod, start: int) -> None:
    for number in range(start, start + count):
        log.add_pod(_pod(f"pod-{number}", wanted))
    scheduler.follow()


def _publish(scheduler: Scheduler, now: float) -> list[TypicalPodsLearned]:
    for write in status_facts(scheduler.state, now):
        scheduler.state.status.writes.put(write)
    scheduler.send()
    scheduler.follow()
    return [each for each in map(CATALOGUE.read, scheduler.log.events) if isinstance(each, TypicalPodsLearned)]


def test_typical_pods_are_learned_as_facts_of_the_log() -> None:
    log = SmallLog()
    scheduler = Scheduler(log, LEARNING)
    log.add_node(_node(0, NODES[0]))
    observed = CustomObjectObserved(object=device("node-0", [gpu(minor) for minor in range(4)]))
    log.say("customspec", custom_ref("devices", "", "node-0").id, observed)
    scheduler.follow()
    plugin = _plugin(scheduler.state.frameworks)
    nodes, rows = scheduler.state.frameworks.cluster.nodes, np.array([0], np.intp)
    read = scheduler.state.frameworks.cluster.pod_classes.read(_pod("probe", KINDS[1])).subject.pod_class
    assert plugin.control_due() is None
    before = plugin.score(read, nodes, rows)
    _created(log, scheduler, 3, KINDS[1], 0)
    _created(log, scheduler, 1, KINDS[4], 3)
    now = datetime.fromisoformat("2026-01-01T00:10:00Z").timestamp()
    (learned,) = _publish(scheduler, now)
    assert learned.pods == 4
    assert [(each.milli_cpu, each.gpu_milli, each.frequency) for each in learned.typical_pods] == [
        (8000, 470, 0.75),
        (11000, 1000, 0.25),
    ]
    after = plugin.score(read, nodes, rows)
    assert before is not None
    assert after is not None
    assert before.tolist() != after.tolist()
    assert _publish(scheduler, now + 1) == [learned], "frozen between refreshes"
    assert _publish(scheduler, now + 700) == [learned], "unchanged"
    _created(log, scheduler, 4, KINDS[4], 4)
    assert len(_publish(scheduler, now + 1400)) == 2
    assert len(_publish(scheduler, now + 8000)[-1].typical_pods) == 0, "the window is over"

    replayed = Scheduler(log, LEARNING)
    replayed.follow()
    restored = _plugin(replayed.state.frameworks)
    assert restored.facts() != b""
    assert restored.score(read, replayed.state.frameworks.cluster.nodes, rows) is not None
    copy = Scheduler(SmallLog(), LEARNING)
    _plugin(copy.state.frameworks).restore(plugin.facts())
    assert _plugin(copy.state.frameworks).facts() == plugin.facts()


def test_models_of_a_pod_come_from_its_selector_or_its_required_affinity() -> None:
    assert gpu_models(_pod("p", KINDS[0])) == ""
    assert gpu_models(pod("p", {}, nodeSelector={keys.GPU_MODEL: "T4"})) == "T4"
    term = {"matchExpressions": [{"key": keys.GPU_MODEL, "operator": "In", "values": ["V100", "P100"]}]}
    other = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}

    def required(*terms: object) -> Pod:
        selector = {"nodeSelectorTerms": list(terms)}
        return pod("p", {}, affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}})

    assert gpu_models(required(term)) == "P100|V100"
    assert gpu_models(required(term, other)) == ""
    assert requests_of(asking("p", {"koordinator.sh/gpu-memory": "4Gi"})) is None
