"""Random histories of the containers of a workload, as the recommender hears of them.

Drawn so that samples meet: peaks that rise within a day and over its end, kills just before and after it, several pods
of two revisions, gaps of many half-lives. What differs for a wanted reason is kept out (`differences.py`).
"""

from collections.abc import Sequence
from typing import Final

from support.oracle.drawing.dice import Dice
from support.oracle.lines import Document

BEGIN: Final = 1_767_225_600
"""2026-01-01."""
MINUTE, HOUR, DAY = 60, 3600, 86_400
MIB: Final = 1 << 20

DEFAULTS: Final[dict[str, float]] = {
    "targetCPUPercentile": 0.9,
    "targetMemoryPercentile": 0.9,
    "lowerBoundPercentile": 0.5,
    "upperBoundPercentile": 0.95,
    "safetyMarginFraction": 0.15,
    "cpuHalfLifeSeconds": DAY,
    "memoryHalfLifeSeconds": DAY,
    "memoryAggregationIntervalSeconds": DAY,
    "oomBumpUpRatio": 1.2,
    "oomMinBumpUpBytes": 100 * MIB,
    "podMinCPUMillicores": 25,
    "podMinMemoryMb": 250,
}

PERCENTILES = (0.01, 0.1, 0.25, 0.5, 0.7, 0.9, 0.95, 0.98, 0.99)
"""Not 1: whether a sum of all weights in another order reaches their total is decided by the last bit."""
CPU_REQUESTS = ("", "10m", "100m")
"""At most the least weight of a CPU sample: it is the request in ours (`differences.py`)."""
MEMORY_REQUESTS = ("", "64Mi", "300M", "1Gi", "7Gi")
CPU_CAPS = ("0", "1m", "40m", "100m", "1", "2500m", "12", "800")
MEMORY_CAPS = ("0", "1", "32Mi", "100M", "1Gi", "1.5Gi", "20Gi", "3T")


def case(seed: int) -> Document:
    dice = Dice(seed)
    # The minimum of a pod is divided among other containers there, unless all pods have the same ones.
    is_uniform = dice.chance(0.5)
    settings = _settings(dice, has_minimum=is_uniform)
    names = dice.some(("app", "proxy", "log", "db"), 4)
    containers = [_container(dice, name) for name in names]
    policies = _policies(dice, names, may_be_off=not is_uniform)
    events = _Drawn(dice, containers, settings, is_uniform=is_uniform).events()
    return {"history": {"settings": settings, "policies": policies, "events": events}}


def _settings(dice: Dice, *, has_minimum: bool) -> dict[str, float]:
    settings: dict[str, float] = {}
    if dice.chance(0.6):
        lower, target, upper = sorted(dice.some(PERCENTILES, 1)[0] for _ in range(3))
        settings |= {
            "targetCPUPercentile": target,
            "targetMemoryPercentile": dice.one((lower, target, upper)),
            "lowerBoundPercentile": lower,
            "upperBoundPercentile": upper,
            "safetyMarginFraction": dice.one((0, 0.01, 0.15, 0.3, 1, 2.5)),
            "cpuHalfLifeSeconds": dice.one((10 * MINUTE, HOUR, 12 * HOUR, DAY, 3 * DAY)),
            "memoryHalfLifeSeconds": dice.one((10 * MINUTE, HOUR, 12 * HOUR, DAY, 3 * DAY)),
            "memoryAggregationIntervalSeconds": dice.one((30 * MINUTE, HOUR, 6 * HOUR, DAY)),
            "oomBumpUpRatio": dice.one((1, 1.05, 1.2, 1.5, 2)),
            "oomMinBumpUpBytes": dice.one((0, 1e6, 100 * MIB, 2e9)),
            "podMinCPUMillicores": dice.one((0, 1, 10, 25, 33, 1000)),
            "podMinMemoryMb": dice.one((0, 1, 10, 250, 1000.5)),
        }
    if not has_minimum:
        settings |= {"podMinCPUMillicores": 0, "podMinMemoryMb": 0}
    return settings


def _container(dice: Dice, name: str) -> Document:
    requests = {
        resource: amount
        for resource, amount in (("cpu", dice.one(CPU_REQUESTS)), ("memory", dice.one(MEMORY_REQUESTS)))
        if amount
    }
    return {"name": name, "resources": {"requests": requests}}


def _policies(dice: Dice, names: Sequence[str], *, may_be_off: bool) -> list[Document]:
    found: list[Document] = []
    for name in (*names, "*", "nobody"):
        if not dice.has("policy", 0.3):
            continue
        policy: Document = {"containerName": name}
        if may_be_off and dice.has("off", 0.3):
            policy["mode"] = "Off"
        for bound in ("minAllowed", "maxAllowed"):
            amounts = {
                resource: dice.one(caps)
                for resource, caps in (("cpu", CPU_CAPS), ("memory", MEMORY_CAPS))
                if dice.chance(0.4)
            }
            if amounts:
                policy[bound] = amounts
        found.append(policy)
    return found


class _Pod:
    """A pod while a history is drawn."""

    def __init__(self, uid: str, containers: list[Document]) -> None:
        self.uid = uid
        self.containers = containers
        self.reported_at: dict[str, int] = {}  # Container -> time of its last report
        self.killed_at: dict[str, int] = {}  # Container -> time of its last kill


class _Drawn:
    """One history while it is drawn."""

    def __init__(self, dice: Dice, containers: list[Document], settings: dict[str, float], *, is_uniform: bool) -> None:
        self._dice = dice
        self._containers = containers
        self._is_uniform = is_uniform
        self._interval = int(settings.get("memoryAggregationIntervalSeconds", DAY))
        self._at = BEGIN + dice.number(0, DAY)
        # Two revisions only while no weight falls below epsilon: `differences.REVISIONS`.
        lives = (settings.get(f"{each}HalfLifeSeconds", DAY) for each in ("cpu", "memory"))
        is_long = dice.chance(0.5) or min(lives) < DAY
        self._revisions, self._long_gaps = ("a", (40 * DAY, 150 * DAY)) if is_long else ("aab", ())
        self._pods: list[_Pod] = []
        self._pod_at: dict[int, str] = {}  # Second of an interval -> uid of the pod that reports then
        self._created = 0
        self._events: list[Document] = []
        self._step = dice.one((10, MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 11 * HOUR))
        self._usual = {each["name"]: self._usage() for each in containers}

    def events(self) -> list[Document]:
        dice = self._dice
        for _ in range(dice.number(1, 3)):
            self._create()
        for _ in range(dice.number(1, dice.one((5, 20, 60)))):
            self._pass_time()
            if dice.has("rollouts", 0.05):
                self._create()
            if len(self._pods) > 1 and dice.has("rollouts", 0.05):
                self._delete(dice.one(self._pods))
            for pod in self._pods:
                self._at += dice.number(1, 5)
                for container in pod.containers:
                    if dice.chance(0.9):
                        self._report(pod, container["name"])
            if dice.chance(0.15):
                self._events.append({"at": self._at, "ask": True})
        if not self._is_uniform and dice.chance(0.2):
            for pod in list(self._pods):
                self._delete(pod)
        self._events.append({"at": self._at, "ask": True})
        return self._events

    def _usage(self) -> tuple[int, int]:
        """A usual usage: milli-cores and bytes."""
        dice = self._dice
        return int(10 ** (dice.number(0, 50) / 10)) - 1, int(10 ** (dice.number(40, 115) / 10))

    def _pass_time(self) -> None:
        dice = self._dice
        self._at += self._step
        if dice.has("jitter", 0.5):
            self._at += dice.number(0, self._step)
        if dice.has("gaps", 0.03):
            self._at += dice.one((self._interval, self._interval - 1, 3 * DAY, *self._long_gaps))

    def _create(self) -> None:
        dice, containers = self._dice, self._containers
        if not self._is_uniform:
            containers = dice.some(containers, len(containers))
        pod = _Pod(f"p{self._created}", containers)
        self._created += 1
        self._pods.append(pod)
        labels = {"app": "web", "pod-template-hash": dice.one(self._revisions)}
        self._events.append({"at": self._at, "created": {"uid": pod.uid, "labels": labels, "containers": containers}})

    def _delete(self, pod: _Pod) -> None:
        self._pods.remove(pod)
        self._events.append({"at": self._at, "deleted": pod.uid})

    def _report(self, pod: _Pod, name: str) -> None:
        dice = self._dice
        if dice.has("changes", 0.05):
            self._usual[name] = self._usage()
        cpu, memory = self._usual[name]
        event: Document = {"at": self._at, "pod": pod.uid, "container": name}
        if dice.has("late", 0.05) and name not in pod.killed_at:
            again = self._at - pod.reported_at.get(name, self._at)
            event["at"] -= dice.one((1, self._step, 3 * self._step, again, again))
        # Equal times are equal weights, and then the last bit decides at which bucket a percentile is reached.
        while self._pod_at.setdefault(event["at"] % self._interval, pod.uid) != pod.uid:
            event["at"] -= 1
        pod.reported_at[name] = event["at"]
        if not dice.has("unmeasured", 0.03):
            spread = dice.one((1, 1, 1.02, 1.5, 4))
            milli = int(cpu * dice.number(50, 100) / 100 * spread)
            event["usage"] = [milli, 1 + int(memory * dice.number(80, 100) / 100 * spread)]
        if dice.has("kills", 0.05) and (killed := self._kill(event)) > pod.killed_at.get(name, 0):
            pod.killed_at[name] = event["killedAt"] = killed
        if "usage" in event or "killedAt" in event:
            self._events.append(event)

    def _kill(self, event: Document) -> int:
        """When the container of a report was killed: mostly just before."""
        dice, at = self._dice, event["at"]
        if "usage" in event and dice.chance(0.3):
            return at - self._interval + dice.one((-self._step, -1, 0, 1, self._step))
        return at - dice.number(0, min(self._step, self._interval))
