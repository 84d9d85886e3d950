"""The engine with devices: decisions a second, each with its allocation, on 5,000 nodes of 8 GPUs.

The targets hold on a machine whose row `engine` gives 40,000 pods a second; the row `engine` beside them is the same
number of plain pods on the same nodes, in the same run.
"""

import time
from collections.abc import Iterator, Sequence
from random import Random

from bench.options import BenchOptions
from bench.results import Better, Result
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_shape import node_shape
from koord_scheduler.domain.engine.decision import Placed
from koord_scheduler.domain.framework.outcomes import Rejection
from koordcore.events.envelope import BasedOn
from koordcore.protocol.objects import Pod
from koordcore.service.run import collect_rarely
from koordcore.values.allocation import NOTHING
from support.scheduler.devices import RATIO, RDMA, VF_HINT, asking, board, device
from support.scheduler.scheduling import frameworks, node, pod

NODES, PODS = 5_000, 10_000
MORE = {RATIO: "800", RDMA: "400", "koordinator.sh/gpu-core": "800", "nvidia.com/gpu": "8"}
JOINT = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
REFERENCE = 40_000.0


def _decisions_a_second(nodes: int, pods: Sequence[Pod], *, with_devices: bool = True) -> float:
    """Decide, allocate and count pods one after the other."""
    made = frameworks()
    cluster, engine, framework = made.cluster, made.first.engine, made.first
    for number in range(nodes):
        one = node(f"node-{number}", cpu="192", memory="2Ti", more=MORE)
        if with_devices:
            cluster.put_object("devices", device(f"node-{number}", board(per_switch=1, functions=8)))
        row, _ = cluster.nodes.put(one.metadata.name, node_shape(one))
        cluster.put_node(row, one, node_shape(one))
    subjects = [cluster.pod_classes.read(each).subject for each in pods]
    for subject in {id(each): each for each in subjects}.values():
        engine.decide(subject, "first", BasedOn(0, 0))
    began = time.perf_counter()
    for number, subject in enumerate(subjects):
        uid = f"uid-{number}"
        decision = engine.decide(subject, uid, BasedOn(number, 0))
        assert isinstance(decision, Placed), decision
        allocation = NOTHING
        if subject.pod_class.concerned:
            record = PodRecord(uid=uid, pod=pods[number], subject=subject)
            given = framework.reserve(record, decision.node)
            assert not isinstance(given, Rejection), given
            allocation = given
        info = PodInfo(uid, subject.pod_class.demand, subject.pod_class, subject.kind, allocation=allocation)
        cluster.accounting.take(decision.row, info)
    return len(pods) / (time.perf_counter() - began)


def _rows(scale: float) -> Iterator[tuple[str, float, list[Pod]]]:
    random = Random(1)
    count = max(100, int(PODS * scale))
    shares = [asking("share", {"cpu": "1", RATIO: str(random.randrange(20, 81))}) for _ in range(count)]
    yield "GPU shares of 20 to 80 percent", 8_000.0, shares
    joint = asking("job", {"cpu": "8", "nvidia.com/gpu": "4", RDMA: "4"}, hints=_joint_hints(), joint=JOINT)
    yield "4 GPUs and 4 RDMA functions under the same switches", 3_000.0, [joint] * (count // 2)


def _joint_hints() -> object:
    return {"rdma": {**VF_HINT["rdma"], "allocateStrategy": "RequestsAsCount"}}


def measure(options: BenchOptions) -> Iterator[Result]:
    """Rates, and the rate of plain pods to compare them with."""
    collect_rarely()
    nodes = max(50, int(NODES * options.scale))
    plain = [pod("plain", {"cpu": "1"})] * max(100, int(PODS * options.scale))
    basic = max(_decisions_a_second(nodes, plain) for _ in range(options.runs))
    yield Result(name="devices: plain pods on the same nodes", value=basic, unit="pods/s")
    for name, target, pods in _rows(options.scale):
        value = max(_decisions_a_second(nodes, pods) for _ in range(options.runs))
        yield Result(
            name=f"devices: {name}",
            value=value,
            unit="pods/s",
            target=target * min(1.0, basic / REFERENCE),
            better=Better.HIGHER,
            note=f"the target is {target:,.0f} where plain pods reach {REFERENCE:,.0f} a second",
        )
