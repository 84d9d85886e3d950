"""Where ours recommends something else than the Vertical Pod Autoscaler, and is to stay so.

Random cases have nothing of this kind, but for `UNSAMPLED`, which the comparison allows for. Each difference has a case
that shows it: a test asks whether it is still one.
"""

from typing import Any, Final, NamedTuple

from support.oracle.lines import Document
from support.oracle.recommending.histories import BEGIN, HOUR, MIB

GIB: Final = 1 << 30


class Wanted(NamedTuple):
    """A difference that stays."""

    name: str
    reason: str
    history: Document


def _pod(uid: str, *containers: str, revision: str = "a", **requests: str) -> Document:
    labels = {"app": "web", "pod-template-hash": revision}
    written = [{"name": name, "resources": {"requests": requests}} for name in containers or ("app",)]
    return {"at": BEGIN, "created": {"uid": uid, "labels": labels, "containers": written}}


def _used(at: int, milli: int, memory: int, *, pod: str = "p0", container: str = "app", **more: int) -> Document:
    return {"at": BEGIN + at, "pod": pod, "container": container, "usage": [milli, memory], **more}


def _history(*events: Document, **more: Any) -> Document:
    return {"history": {"settings": {}, "policies": [], "events": [*events, {"ask": True}], **more}}


UNSAMPLED: Final = Wanted(
    "a resource without samples",
    "The autoscaler recommends the minimum of a pod for what it knows nothing of, and evicts pods for it. Ours leaves"
    " the resource out (decision 0063). So 0 bytes are no sample either: a container that runs uses some",
    _history(_pod("p0"), _used(0, 500, 0)),
)
WEIGHTS: Final = Wanted(
    "the weight of a CPU sample",
    "The request of the container, at least 0.1 cores, as the specification has it and as a comment in the autoscaler"
    " said: there the request never reached the histogram, so each sample weighs 0.1 (kubernetes/autoscaler#7818)",
    _history(
        *(_pod("p0", cpu="100m"), _pod("p1", cpu="4")),
        *(_used(minute * 60, 100, GIB) for minute in range(6)),
        *(_used(minute * 60 + 30, 3000, GIB, pod="p1") for minute in range(6)),
        settings={"lowerBoundPercentile": 0.25, "targetCPUPercentile": 0.4},
    ),
)
MINIMUM: Final = Wanted(
    "the share of the minimum of a pod",
    "Ours divides it among all containers of the pod. The autoscaler does not count those that its policy leaves alone,"
    " so what it recommends for one container depends on the policy for another",
    _history(
        _pod("p0", "app", "log"),
        *(_used(minute * 60, 1, MIB, container=name) for minute in range(2) for name in ("app", "log")),
        policies=[{"containerName": "log", "mode": "Off"}],
    ),
)
LATE: Final = Wanted(
    "a report from before the last one, after a kill",
    "A kill is always newer than the report before it and told after it. In the autoscaler its time becomes that of the"
    " last sample, so samples that were refused before are taken",
    _history(
        *(_pod("p0"), _used(2 * HOUR, 100, GIB, killedAt=BEGIN + HOUR), _used(90 * 60, 100, 8 * GIB)),
        *(_used(2 * HOUR + 60, 100, GIB), _used(2 * HOUR + 120, 100, GIB)),
    ),
)
REVISIONS: Final = Wanted(
    "weights below epsilon, with several revisions of a workload",
    "The autoscaler has a histogram for each set of labels, and drops what weighs less than epsilon there. Ours has one"
    " for the workload. What is dropped is a hundred days old with the default half-lives",
    _history(
        *(_pod("p0"), _pod("p1", revision="b")),
        *(_used(0, 70, GIB, pod="p1"), _used(99 * HOUR, 200, GIB), _used(99 * HOUR + 2, 230, GIB, pod="p1")),
        *(_used(110 * HOUR, 30, GIB), _used(110 * HOUR + 3, 40_000, GIB, pod="p1")),
        settings={"cpuHalfLifeSeconds": HOUR},
    ),
)
WANTED: Final = (UNSAMPLED, WEIGHTS, MINIMUM, LATE, REVISIONS)
