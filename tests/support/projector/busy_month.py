"""A generated log of a busy cluster: facts of nodes, pods, quotas, the descheduler and configurations, by seed.

A cluster of 200 nodes writes ten million facts in 30 days: each node about 1.16 facts a minute. Three quarters are the
lives of pods, nine facts each. Like the services, it places each pod where it fits, and writes the facts of a decision
together. Equal arguments give equal bytes.

    for batch in Month(facts=100_000).batches(): ...         lists of `Written`, in the order of the log
"""

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, NamedTuple, ParamSpec

import msgspec
from koordcore.bus.client.wire import HEADER_LINE, decode_headers
from koordcore.events import CATALOGUE
from koordcore.events.descheduling import DeschedulerConfigured, RoundCarriedOut, RoundDecided, RoundMove
from koordcore.events.envelope import AggregateRef, BasedOn, Event, StoredEvent
from koordcore.events.gateway import PodBound, PodEvicted, PodEvictionRequested
from koordcore.events.migration import (
    MigratedPod,
    MigrationAdvanced,
    MigrationArbitrated,
    MigrationEnded,
    MigrationForgotten,
    MigrationProgress,
)
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken, PodOnNode, pod_on_node
from koordcore.events.nodepolicy import NodeOvercommitComputed, OvercommitTerms
from koordcore.events.nodestate import AgentStarted, BeCpuSuppressed, PodsStarted, PodsStopped
from koordcore.events.objects import (
    ConfigAccepted,
    CustomObjectDeleted,
    CustomObjectObserved,
    NamespaceObserved,
    NodeSpecAdded,
    NodeSpecChanged,
    PodSpecAdded,
    PodSpecDeleted,
    custom_ref,
)
from koordcore.events.pod import DecisionBasis, NodeScore, PlacementExplanation, PodPlaced, PodReleased
from koordcore.events.quota import QuotaStatusComputed
from koordcore.protocol import keys
from koordcore.protocol.objects import (
    ConfigMap,
    Container,
    Namespace,
    Node,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodSpec,
    ResourceRequirements,
)
from koordcore.values.timestamps import rfc3339

P = ParamSpec("P")

BEGIN: Final = datetime(2026, 10, 1, tzinfo=UTC)
FACTS_OF_A_NODE_MINUTE: Final = 10_000_000 / (200 * 30 * 24 * 60)
GIB: Final = 1 << 30
CORES: Final = 64
TEAMS: Final = ("checkout", "search", "billing", "etl", "training", "web")
SERVICES_OF_A_NODE: Final = 8
"""Pods of a node that run from the first minute to the last."""
BATCH: Final = 2_000


class Written(NamedTuple):
    """One fact: its aggregate as `<kind>.<id>`, its encoded header lines and its body."""

    subject: str
    header: bytes
    body: bytes

    def stored(self, seq: int) -> StoredEvent:
        """Return the fact as it stands in a log at a position."""
        kind, _, id_ = self.subject.partition(".")
        headers = decode_headers(HEADER_LINE + self.header + b"\r\n")
        return StoredEvent(seq, AggregateRef(kind, id_), headers, self.body, seq * 1_000_000)


class _Shape(NamedTuple):
    cpu_milli: int
    memory_bytes: int
    is_best_effort: bool
    pod: Pod
    entry: PodOnNode


@dataclass(slots=True)
class _Machine:
    name: str
    cpu_free: int = CORES * 1000
    memory_free: int = CORES * 4 * GIB
    batch_free: int = 20_000
    pods: int = 0
    quota_us: int = -1


@dataclass(slots=True)
class _Life:
    uid: str
    name: str
    shape: _Shape
    machine: _Machine
    placement: int = 0
    steps: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])


class Month:
    """Generates the facts of a cluster.

    Args:
        facts: Number of facts; it decides how long the cluster runs.
        nodes: Number of nodes.
        seed: Seed of all random choices.
    """

    def __init__(self, *, facts: int, nodes: int = 200, seed: int = 7) -> None:
        self.facts = facts
        self._random = random.Random(seed)
        self._seed = seed
        self._encode = msgspec.json.Encoder().encode
        self._out: list[Written] = []
        self._count = 0
        self._seconds = 0.0
        self._text = ""
        self._order = 0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._machines = [_Machine(f"node-{number:04d}") for number in range(nodes)]
        self._shapes = _shapes()
        self._number = 0
        self._placed: list[_Life] = []
        self._decided = 0
        self._acknowledged = 0
        self._rounds = 0

    def batches(self) -> Iterator[list[Written]]:
        """Yield the facts in the order of the log, in lists of about 2,000."""
        self._begin()
        while self._count < self.facts:
            at, _, act = heapq.heappop(self._due)
            self._move_to(at)
            act()
            if len(self._out) >= BATCH:
                yield self._taken()
        yield self._taken()

    @property
    def now(self) -> datetime:
        """Time of the newest fact."""
        return BEGIN + timedelta(seconds=self._seconds)

    def _taken(self) -> list[Written]:
        surplus = max(0, self._count - self.facts)
        taken, self._out = self._out[: len(self._out) - surplus], []
        return taken

    def _begin(self) -> None:
        self._move_to(0.001)
        for team in TEAMS:
            observed = NamespaceObserved(object=Namespace(metadata=ObjectMeta(name=team)))
            self._write("namespace", team, observed, "manager/0", team)
            self._quota_object(team)
        self._config(0)
        self._configured(0)
        for machine in self._machines:
            self._write("nodespec", machine.name, NodeSpecAdded(object=_node(machine)), "manager/0", machine.name)
            started = AgentStarted(host="linux", version="0.1.0")
            self._write("nodestate", machine.name, started, f"agent/{machine.name}", machine.name)
        for number, machine in enumerate(self._machines):
            self._at(self._random.uniform(1, 300), self._overcommit, machine)
            self._at(self._random.uniform(60, 720), self._suppress, machine)
            for _ in range(SERVICES_OF_A_NODE):
                self._at(1 + number * 0.05, self._submit, float("inf"))
        lives = (FACTS_OF_A_NODE_MINUTE - 1 / 5 - 1 / 12) / 9
        self._pause = 60 / (lives * len(self._machines))
        self._at(60.0, self._arrive)
        self._at(60.0, self._quota, 0)
        self._at(300.0, self._round)
        self._at(3600.0, self._cordon, 0)
        self._at(6 * 3600.0, self._config, 1)
        self._at(24 * 3600.0, self._configured, 1)

    def _arrive(self) -> None:
        self._submit(self._random.expovariate(1 / 3000) + 30)
        self._at(self._seconds + self._random.expovariate(1 / self._pause), self._arrive)

    def _submit(self, seconds: float) -> None:
        """Submit a pod that runs for `seconds`, and place it 0.1 s later. Without a node that has room, submit none."""
        shape = self._random.choice(self._shapes)
        machine = self._fitting(shape)
        if machine is None:
            return
        self._number += 1
        team = TEAMS[self._number % len(TEAMS)]
        uid, name = f"{self._seed:08x}-0000-4000-8000-{self._number:012x}", f"{team}-{self._number:07d}"
        meta = msgspec.structs.replace(shape.pod.metadata, name=name, namespace=team, uid=uid)
        pod = msgspec.structs.replace(shape.pod, metadata=meta)
        life = _Life(uid, name, shape, machine)
        self._write("podspec", uid, PodSpecAdded(object=pod), "manager/0", uid)
        self._take(life, 1)
        self._at(self._seconds + 0.1, self._place, life, team, rfc3339(self.now), seconds)

    def _fitting(self, shape: _Shape) -> _Machine | None:
        for _ in range(8):
            machine = self._random.choice(self._machines)
            cpu = machine.batch_free if shape.is_best_effort else machine.cpu_free
            if cpu >= shape.cpu_milli and machine.memory_free >= shape.memory_bytes and machine.pods < 100:
                return machine
        return None

    def _take(self, life: _Life, sign: int) -> None:
        machine, shape = life.machine, life.shape
        machine.pods += sign
        machine.memory_free -= sign * shape.memory_bytes
        if shape.is_best_effort:
            machine.batch_free -= sign * shape.cpu_milli
        else:
            machine.cpu_free -= sign * shape.cpu_milli

    def _place(self, life: _Life, team: str, queued_at: str, seconds: float) -> None:
        name = life.machine.name
        based_on = BasedOn(self._count, 0)
        self._decided += 1
        basis = DecisionBasis(
            based_on=based_on,
            ordinal=self._decided,
            decided_at=self.now.timestamp(),
            acknowledged=self._acknowledged,
            found=True,
        )
        scores = [NodeScore(name, 90 - rank, {"NodeResourcesFit": 90 - rank}) for rank in range(3)]
        placed = PodPlaced(
            namespace=team,
            name=life.name,
            node=name,
            requests=life.shape.entry.requests,
            attempt=1,
            queued_at=queued_at,
            basis=basis,
            explanation=PlacementExplanation(
                nodes_considered=len(self._machines),
                nodes_feasible=len(self._machines) - 3,
                top=scores,
                policy_version="0123456789abcdef",
                based_on=based_on,
            ),
        )
        self._write("pod", life.uid, placed, "scheduler/0", life.uid)
        life.placement = self._count
        entry = msgspec.structs.replace(life.shape.entry, uid=life.uid, namespace=team, name=life.name)
        self._write("node", name, NodeResourcesTaken(pods=[entry]), "scheduler/0", life.uid)
        self._acknowledged = self._count
        self._at(self._seconds + 0.05, self._bind, life)
        self._at(self._seconds + 2, self._start, life)
        if seconds != float("inf"):
            self._placed.append(life)
            self._at(self._seconds + 2 + seconds, self._stop, life, team)

    def _bind(self, life: _Life) -> None:
        bound = PodBound(node=life.machine.name, placement=life.placement)
        self._write("podspec", life.uid, bound, "manager/0", life.uid)

    def _start(self, life: _Life) -> None:
        name = life.machine.name
        self._write("nodestate", name, PodsStarted(pods=[life.uid]), f"agent/{name}", life.uid)

    def _stop(self, life: _Life, team: str) -> None:
        name = life.machine.name
        self._write("nodestate", name, PodsStopped(pods=[life.uid]), f"agent/{name}", life.uid)
        self._write("podspec", life.uid, PodSpecDeleted(namespace=team, name=life.name), "manager/0", life.uid)
        released = PodReleased(namespace=team, name=life.name, node=name, reason="deleted")
        self._write("pod", life.uid, released, "scheduler/0", life.uid)
        self._write("node", name, NodeResourcesReturned(pods=[life.uid]), "scheduler/0", life.uid)
        self._acknowledged = self._count
        self._take(life, -1)

    def _overcommit(self, machine: _Machine) -> None:
        used = self._random.randrange(4_000, 30_000)
        terms = OvercommitTerms(
            capacity=CORES * 1000,
            margin=CORES * 350,
            system_used=1200,
            reserved=1000,
            high_priority_used=used,
            high_priority_request=40_000,
            result=max(0, CORES * 650 - 1200 - used),
            policy="usage",
        )
        memory = msgspec.structs.replace(terms, capacity=CORES * 4 * GIB, margin=0, result=60 * GIB + used)
        computed = NodeOvercommitComputed(
            batch_cpu_milli=terms.result,
            batch_memory_bytes=memory.result,
            reason="changed",
            terms={"cpu": terms, "memory": memory},
            metric_updated_at=self._text,
            config_version=2,
            based_on=BasedOn(self._count, self._count // 2),
            changed=["cpu"],
        )
        self._write("nodepolicy", machine.name, computed, "manager/0", machine.name)
        self._at(self._seconds + self._random.uniform(280, 320), self._overcommit, machine)

    def _suppress(self, machine: _Machine) -> None:
        quota = self._random.randrange(2, 40) * 50_000
        suppressed = BeCpuSuppressed(
            old_quota_us=machine.quota_us,
            new_quota_us=quota,
            terms={"capacity": CORES * 1000, "threshold_percent": 65, "budget": quota // 100},
            reason="latency-sensitive pods use more CPU",
        )
        machine.quota_us = quota
        self._write("nodestate", machine.name, suppressed, f"agent/{machine.name}", machine.name)
        self._at(self._seconds + self._random.uniform(600, 840), self._suppress, machine)

    def _quota(self, number: int) -> None:
        team = TEAMS[number % len(TEAMS)]
        amounts = {"cpu": self._random.randrange(100_000, 900_000), "memory": 800 * GIB}
        computed = QuotaStatusComputed(name=f"team-{team}", namespace=team, used=amounts, runtime=amounts)
        self._write("quota", f"{team}=team-{team}", computed, "scheduler/0", f"team-{team}")
        self._at(self._seconds + 60, self._quota, number + 1)

    def _quota_object(self, team: str) -> None:
        document = {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": f"team-{team}", "namespace": team, "uid": f"quota-{team}"},
            "spec": {"min": {"cpu": 1000, "memory": "4Ti"}, "max": {"cpu": 4000, "memory": "16Ti"}},
        }
        ref = custom_ref("elasticquotas", team, f"team-{team}")
        self._write(ref.kind, ref.id, CustomObjectObserved(object=document), "manager/0", team)

    def _config(self, version: int) -> None:
        name, space = "slo-controller-config", "koordinator-system"
        percent = 60 + version % 10
        data = {"colocation-config": f'{{"enable":true,"cpuReclaimThresholdPercent":{percent}}}'}
        accepted = ConfigAccepted(object=ConfigMap(metadata=ObjectMeta(name=name, namespace=space), data=data))
        self._write("config", f"{space}={name}", accepted, "manager/0", name)
        if version:
            self._at(self._seconds + 6 * 3600, self._config, version + 1)

    def _configured(self, version: int) -> None:
        configured = DeschedulerConfigured(
            configuration_hash=f"{version:016x}", configuration={"interval": f"{600 + version}s"}, asked_by="alice"
        )
        self._write("descheduler", "default", configured, "descheduler/0", "default")
        if version:
            self._at(self._seconds + 24 * 3600, self._configured, version + 1)

    def _cordon(self, number: int) -> None:
        machine = self._machines[number // 2 % len(self._machines)]
        changed = NodeSpecChanged(object=_node(machine, unschedulable=number % 2 == 0))
        self._write("nodespec", machine.name, changed, "manager/0", machine.name)
        self._at(self._seconds + 3600, self._cordon, number + 1)

    def _round(self) -> None:
        """Let a round of the descheduler choose one pod, and migrate it: its job, its eviction, and the job's end."""
        self._rounds += 1
        self._at(self._seconds + 600, self._round)
        if not self._placed:
            return
        life = self._random.choice(self._placed[-400:])
        del self._placed[:-400]
        team, job, node = life.name.rpartition("-")[0], f"job-{self._rounds:07d}", life.machine.name
        move = RoundMove(
            namespace=team,
            name=life.name,
            uid=life.uid,
            node=node,
            profile="default",
            plugin="LowNodeLoad",
            reason=f"node is overutilized, cpu usage {60 + self._rounds % 30} %",
            job=job,
        )
        actor, id_ = "descheduler/0", f"migration-{self._rounds:07d}"
        self._write("descheduling", "rounds", RoundDecided(started_at=rfc3339(self.now), moves=[move]), actor, life.uid)
        meta = {
            "name": job,
            "uid": id_,
            "annotations": {keys.EVICT_TRIGGER: move.plugin, keys.EVICT_REASON: move.reason},
        }
        document = {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "PodMigrationJob",
            "metadata": meta,
            "spec": {"podRef": {"namespace": team, "name": life.name, "uid": life.uid}, "mode": "EvictDirectly"},
        }
        ref = custom_ref("podmigrationjobs", "", job)
        self._write(ref.kind, ref.id, CustomObjectObserved(object=document), actor, life.uid)
        pod = MigratedPod(namespace=team, name=life.name, uid=life.uid)
        arbitrated = MigrationArbitrated(job=job, pod=pod, node=node, trigger=move.plugin, reason=move.reason)
        self._write("migration", id_, arbitrated, actor, life.uid)
        running = MigrationProgress(phase="Running", status="Eviction", reason="Evicting")
        self._write("migration", id_, MigrationAdvanced(pod=pod, progress=running), actor, life.uid)
        requested = PodEvictionRequested(
            namespace=team,
            name=life.name,
            node=node,
            initiator="descheduler",
            reason="Evicted",
            message=move.reason,
            trigger=move.plugin,
            job=job,
        )
        # The time in the id keeps a pod that is chosen twice from having two requests in one aggregate.
        self._write("eviction", f"{life.uid}-{self._rounds}", requested, actor, life.uid)
        self._write("eviction", f"{life.uid}-{self._rounds}", PodEvicted(), "manager/0", life.uid)
        done = MigrationProgress(phase="Succeeded", status="Complete", reason="Evicted")
        self._write("migration", id_, MigrationEnded(job=job, pod=pod, progress=done), actor, life.uid)
        self._write("descheduling", "rounds", RoundCarriedOut(), actor, life.uid)
        self._at(self._seconds + 300, self._forget, job, id_)

    def _forget(self, job: str, id_: str) -> None:
        ref = custom_ref("podmigrationjobs", "", job)
        deleted = CustomObjectDeleted(kind="PodMigrationJob", namespace="", name=job)
        self._write(ref.kind, ref.id, deleted, "descheduler/0", job)
        self._write("migration", id_, MigrationForgotten(), "descheduler/0", job)

    def _at(self, seconds: float, act: Callable[P, None], *given: P.args, **named: P.kwargs) -> None:
        self._order += 1
        heapq.heappush(self._due, (seconds, self._order, partial(act, *given, **named)))

    def _move_to(self, seconds: float) -> None:
        if seconds > self._seconds:
            self._seconds = seconds
            self._text = rfc3339(BEGIN + timedelta(seconds=seconds))

    def _write(self, kind: str, id_: str, event: Event, actor: str, correlation: str) -> None:
        self._count += 1
        number = self._count
        trace = f"{self._seed:08x}{number:024x}"
        header = (
            f"Nats-Msg-Id: {self._seed:08x}-0000-5000-8000-{number:012x}\r\nKoord-Type: {type(event).__name__}\r\n"
            f"Koord-Schema: {_SCHEMAS[type(event)]}\r\nKoord-Causation-Id: cause-{number:x}\r\n"
            f"Koord-Correlation-Id: {correlation}\r\nKoord-Actor: {actor}\r\nKoord-Epoch: 1\r\n"
            f"Koord-Occurred-At: {self._text}\r\nKoord-Based-On: {number - 1}\r\ncontent-type: application/json\r\n"
            f"traceparent: 00-{trace}-{number:016x}-00\r\n"
        )
        self._out.append(Written(f"{kind}.{id_}", header.encode(), self._encode(event)))


_SCHEMAS: Final = {each.model: each.schema for each in CATALOGUE}


def _node(machine: _Machine, *, unschedulable: bool = False) -> Node:
    amounts: dict[str, str | int | float] = {"cpu": CORES, "memory": f"{CORES * 4}Gi", "pods": 110}
    return Node(
        metadata=ObjectMeta(name=machine.name, labels={"kubernetes.io/hostname": machine.name}),
        spec=NodeSpec(unschedulable=unschedulable),
        status=NodeStatus(capacity=dict(amounts), allocatable=dict(amounts)),
    )


def _shapes() -> list[_Shape]:
    """Return the kinds of pods: latency-sensitive and best-effort ones of three sizes each."""
    found: list[_Shape] = []
    for is_best_effort in (False, True):
        for cpu in (500, 1000, 2000):
            memory = cpu // 500 * GIB
            names = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory") if is_best_effort else ("cpu", "memory")
            requests: dict[str, str | int | float] = {
                names[0]: cpu if is_best_effort else f"{cpu}m",
                names[1]: str(memory),
            }
            labels = {"app": "load", keys.QOS_CLASS: "BE" if is_best_effort else "LS"}
            resources = ResourceRequirements(requests=requests, limits=requests)
            pod = Pod(
                metadata=ObjectMeta(name="", namespace="", labels=labels),
                spec=PodSpec(
                    scheduler_name="koord-scheduler",
                    containers=[Container(name="main", image="load", resources=resources)],
                ),
            )
            found.append(_Shape(cpu, memory, is_best_effort, pod, pod_on_node("", pod)))
    return found
