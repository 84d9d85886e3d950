"""Random stories of a cluster: nodes, pods of every sort, quotas, gangs, load, and one scheduler with its log.

A story is a seed. Two schedulers that decide alike live through the same story, because what happens next is drawn
from the seed and from what has happened; so whatever must not change an outcome is tried by playing a story twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

from koord_scheduler.domain.engine.decision import ALL_ON, Optimisations
from koord_scheduler.domain.loop.cycle.deciding import settle_waits
from koord_scheduler.domain.loop.folding.log import fold_report
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, Origin, StoredEvent, name_token
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.events.observation import NodeUsageReported, Usage
from koordcore.events.pod import PlacementExplanation
from koordcore.protocol.objects import ContainerPort, Pod
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata

BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
GANG: Final = "gang.scheduling.koordinator.sh"
QUOTA: Final = "quota.scheduling.koordinator.sh"
GI: Final = 1 << 30
CPUS: Final = 4

_STEPS: Final = (
    *("add_node", "remove_node", "add_pod", "add_pod", "add_pod", "add_gang", "remove_pod", "batch", "quota"),
    *("report", "report", "time", "follow", "follow_some", "decide", "decide", "decide", "decide"),
    *("send", "send", "land", "land", "land_last", "release"),
)


@dataclass(slots=True)
class World:
    """A story under way.

    now       unix seconds
    observed  the stream of reports
    """

    scheduler: Scheduler
    random: Random
    now: float = BEGIN
    observed: list[StoredEvent] = field(default_factory=list[StoredEvent])
    nodes: list[str] = field(default_factory=list[str])
    pods: list[str] = field(default_factory=list[str])
    made: int = 0

    @property
    def log(self) -> SmallLog:
        """The facts."""
        return self.scheduler.log

    def facts(self) -> list[tuple[AggregateRef, Event]]:
        """All that was said, in order, without what depends on the process (ids, times)."""
        return [(stored.ref, event) for stored in self.log.events if (event := CATALOGUE.read(stored)) is not None]


def play(
    seed: int,
    *,
    steps: int = 60,
    configuration: str = "",
    optimisations: Optimisations = ALL_ON,
    kind: type[Scheduler] = Scheduler,
) -> World:
    """Lives through a story, until nothing is left to do. kind: of the scheduler."""
    world = World(kind(SmallLog(), configuration, optimisations=optimisations), Random(seed))
    for what in ("add_node", "add_node", "quota"):
        step(world, what)
    for _ in range(steps):
        step(world, world.random.choice(_STEPS))
    world.scheduler.send()
    while world.scheduler.in_flight:
        world.scheduler.land(now=world.now)
    for _ in range(3):
        _pass_time(world, 400.0)
        world.scheduler.run(world.now)
    return world


def step(world: World, what: str) -> None:
    """One step, drawn from the story's seed and what has happened."""
    scheduler, random, number = world.scheduler, world.random, world.random.randrange(8)
    match what:
        case "add_node":
            _add_node(world, f"n{number}")
        case "remove_node":
            if world.nodes and number == 0:
                world.log.remove_node(world.nodes.pop(random.randrange(len(world.nodes))))
        case "add_pod":
            world.made += 1
            submit(world, some_pod(random, f"p{world.made}"))
        case "add_gang":
            world.made += 1
            size, least = random.choice(((2, 2), (3, 2)))
            for member in range(size):
                wanted = pod(f"g{world.made}-{member}", {"cpu": str(random.randint(1, 3))})
                own = {f"{GANG}/name": f"g{world.made}", f"{GANG}/min-available": str(least)}
                submit(world, with_metadata(wanted, annotations=own))
        case "remove_pod":
            if world.pods:
                uid = world.pods.pop(random.randrange(len(world.pods)))
                if world.log.last_seq(AggregateRef("podspec", uid)):
                    world.log.remove_pod(uid)
        case "batch":
            if world.nodes:
                world.log.set_batch(random.choice(world.nodes), 500 * number, GI)
        case "quota":
            spec = {"max": {"cpu": str(4 + 2 * number), "memory": "64Gi"}, "min": {"cpu": str(number)}}
            ref = custom_ref("elasticquotas", "default", "team")
            document: dict[str, Any] = {"metadata": {"namespace": "default", "name": "team"}, "spec": spec}
            world.log.say(ref.kind, ref.id, CustomObjectObserved(object=document))
        case "report":
            if world.nodes:
                report(world, random.choice(world.nodes), random.choice((10, 40, 64, 90)))
        case "time":
            _pass_time(world, random.choice((1.0, 20.0, 200.0)))
        case "follow":
            scheduler.follow()
        case "follow_some":
            scheduler.follow(number)
        case "decide":
            _pass_time(world, 1.0)
            scheduler.decide(world.now)
        case "release":
            scheduler.state.assumed.release_due()
            scheduler.explanations += settle_waits(scheduler.state, world.now)
        case "send":
            scheduler.send(1 + number)
        case "land" | "land_last":
            if scheduler.in_flight:
                scheduler.land(0 if what == "land" else -1, world.now)
        case _:
            raise AssertionError(what)


def submit(world: World, wanted: Pod) -> None:
    """The pod is there."""
    world.log.add_pod(wanted)
    world.pods.append(wanted.metadata.uid)


def some_pod(random: Random, uid: str) -> Pod:
    """A pod of one of many sorts."""
    requests = {"cpu": str(random.randint(0, 2)), "memory": f"{random.randint(0, 2)}Gi"}
    spec: dict[str, Any] = {"priority": random.choice((0, 0, 0, 100))}
    labels = {"app": random.choice("ab")}
    match random.randrange(10):
        case 0:
            names = [f"n{random.randrange(8)}" for _ in range(random.randint(1, 2))]
            term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": names}]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
            spec["affinity"] = {"nodeAffinity": required}
        case 1:
            spec["nodeSelector"] = {"zone": random.choice("ab")}
        case 2:
            spec["tolerations"] = [{"key": "t", "operator": "Exists"}]
        case 3 | 4 as kind:
            side = "podAntiAffinity" if kind == 3 else "podAffinity"
            where = random.choice(("zone", "kubernetes.io/hostname"))
            pod_term = {"topologyKey": where, "labelSelector": {"matchLabels": {"app": random.choice("ab")}}}
            if random.random() < 0.5:
                spec["affinity"] = {side: {"requiredDuringSchedulingIgnoredDuringExecution": [pod_term]}}
            else:
                wish = {"weight": random.randint(1, 9), "podAffinityTerm": pod_term}
                spec["affinity"] = {side: {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}
        case 5:
            spec["topologySpreadConstraints"] = [
                {
                    "topologyKey": "zone",
                    "maxSkew": 1,
                    "whenUnsatisfiable": random.choice(("DoNotSchedule", "ScheduleAnyway")),
                    "labelSelector": {"matchLabels": {"app": labels["app"]}},
                }
            ]
        case 6:
            labels[f"{QUOTA}/name"] = "team"
        case 7:
            requests = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Mi"}
        case _:
            pass
    wanted = pod(uid, requests, **spec)
    if random.randrange(8) == 0:
        wanted.spec.containers[0].ports.append(ContainerPort(container_port=80, host_port=80))
    return with_metadata(wanted, labels=labels)


def report(world: World, name: str, percent: int) -> None:
    """The node's agent says how much it uses."""
    share = percent / 100
    usage = NodeUsageReported(
        updated_at=_text(world.now),
        report_interval_seconds=60,
        aggregate_duration_seconds=300,
        node_usage=Usage(int(CPUS * 1000 * share), int(8 * GI * share)),
        system_usage=Usage(100, GI // 8),
    )
    ref = AggregateRef("node", name_token(name))
    seq = len(world.observed) + 1
    origin = Origin(causation_id=f"report-{seq}", correlation_id=name, actor="test", occurred_at=_text(world.now))
    [new] = CATALOGUE.seal([Draft(ref, usage, 0)], origin)
    world.observed.append(StoredEvent(seq, ref, new.headers, new.body))
    fold_report(world.scheduler.state, world.observed[-1])


def differences(one: Sequence[tuple[AggregateRef, Event]], other: Sequence[tuple[AggregateRef, Event]]) -> list[str]:
    """Where two histories part."""
    for at, (here, there) in enumerate(zip(one, other, strict=False)):
        if here != there:
            return [f"event {at + 1}:", repr(here), repr(there)]
    return [] if len(one) == len(other) else [f"{len(one)} events against {len(other)}"]


def _add_node(world: World, name: str) -> None:
    random = world.random
    taints = [{"key": "t", "effect": random.choice(("NoSchedule", "PreferNoSchedule"))}]
    zone = {"zone": random.choice("ab")} if random.randrange(4) else {}
    world.log.add_node(
        node(
            name,
            cpu=str(CPUS),
            pods=str(random.choice((2, 5, 110))),
            labels={"kubernetes.io/hostname": name, **zone},
            taints=taints if random.randrange(4) == 0 else (),
            unschedulable=random.randrange(8) == 0,
        )
    )
    if name not in world.nodes:
        world.nodes.append(name)


def _pass_time(world: World, seconds: float) -> None:
    world.now += seconds
    world.scheduler.state.frameworks.advance(world.now)


def _text(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def adds_up(explanation: PlacementExplanation) -> bool:
    """Whether refused and feasible nodes are those considered, and parts of scores their totals; each plugin once."""
    excluded = sum(each.excluded for each in explanation.exclusions)
    names = [each.plugin for each in explanation.exclusions]
    each_says_why = all(each.excluded <= sum(each.reasons.values()) for each in explanation.exclusions)
    scores = all(sum(top.parts.values()) == top.total for top in explanation.top)
    counts = explanation.nodes_feasible + excluded == explanation.nodes_considered
    return counts and each_says_why and scores and len(set(names)) == len(names)
