"""Malformed documents at the manager's door, malformed events before every fold (20,000 each): refused, each with a
reason; nothing crashes, nothing is half-applied, and what is right goes on.
"""

import contextlib
import json
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import httpx
import msgspec
import pytest
import yaml
from koord_manager.compose import assemble
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.settings import ManagerSettings
from koord_projector.fold.projection import Projection
from koord_scheduler.domain.loop.folding.log import fold
from koord_scheduler.domain.loop.state.state import SchedulerState
from koordcore.bus.factory import memory_bus
from koordcore.events.envelope import AggregateRef, StoredEvent
from koordcore.events.registry import UnreadableEvent
from koordcore.service.leader.lease import SoleLeader
from koordcore.service.run import Shell
from koordcore.state import ClusterState
from koordcore.values.invalid import InvalidInput
from support.depth import repeats
from support.histories.history import every_kind_once, history
from support.mutations import STRANGE_TEXTS, damaged, mutated
from support.running_service import running_service
from support.scheduler.scheduling import frameworks
from support.until import DEADLINE_SECONDS

DOCUMENTS = repeats(20_000)
IN_LISTS = repeats(12_000)
PER_LIST = 60
EVENTS = repeats(20_000)

pytestmark = [pytest.mark.slow, pytest.mark.fuzz]

CONFIG = {"colocation-config": '{"enable": true}', "resource-qos-config": '{"clusterStrategy": {}}'}
BASES: list[dict[str, Any]] = [
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"koordinator.sh/qosClass": "LS"}, "annotations": {"a/b": "c"}},
        "spec": {
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "nodeSelector": {"zone": "a"},
            "containers": [
                {
                    "name": "main",
                    "image": "nginx",
                    "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": 1}},
                }
            ],
        },
    },
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "annotations": {"node.koordinator.sh/reservation": '{"resources":{"cpu":"1"}}'}},
        "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
        "status": {"capacity": {"cpu": 4, "memory": "8Gi"}},
    },
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
        "data": CONFIG,
    },
    {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}},
    },
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "gold"}, "value": 9000},
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}},
]


@contextlib.asynccontextmanager
async def manager_over_http() -> AsyncGenerator[httpx.AsyncClient]:
    """A whole manager on loopback over a log in memory."""

    async def compose(shell: Shell[ManagerSettings]) -> None:
        assemble(shell, memory_bus(), SoleLeader("fuzz"))

    async with (
        running_service(ManagerSettings.load(["--log-level=error"], {}), compose) as shell,
        httpx.AsyncClient(base_url=shell.http.url, trust_env=False, timeout=DEADLINE_SECONDS) as client,
    ):
        yield client


def body_of(rng: random.Random) -> bytes:
    """One hostile request body."""
    document = mutated(rng, rng.choice(BASES))
    match rng.randrange(4):
        case 0:
            return json.dumps(document).encode()
        case 1:
            return yaml.safe_dump(document, allow_unicode=True).encode("utf-8", "surrogatepass")
        case 2:
            return rng.choice(STRANGE_TEXTS) + damaged(rng, json.dumps(document).encode())
        case _:
            return damaged(rng, yaml.safe_dump(document).encode())


async def test_malformed_documents_are_each_refused_with_a_reason() -> None:
    rng = random.Random(20261121)
    statuses: Counter[int] = Counter()
    actions: Counter[str] = Counter()
    unexplained: list[str] = []

    def judge(response: httpx.Response) -> None:
        statuses[response.status_code] += 1
        answer = response.json()
        for result in answer.get("results", []):
            actions[result["action"]] += 1
            if result["action"] == "refused" and not all(
                error["rule"] for error in result.get("errors") or [{"rule": ""}]
            ):
                unexplained.append(response.text)
        if response.status_code == 400 and not answer.get("error"):
            unexplained.append(response.text)

    async with manager_over_http() as client:
        for _ in range(IN_LISTS // PER_LIST):
            items = [mutated(rng, rng.choice(BASES)) for _ in range(PER_LIST)]
            judge(await client.post("/v1/apply", content=json.dumps({"kind": "List", "items": items})))
        for _ in range(DOCUMENTS - IN_LISTS):
            path = "/v1/delete" if rng.random() < 0.1 else "/v1/apply"
            judge(await client.post(path, content=body_of(rng)))

        assert set(statuses) <= {200, 207, 400, 422}, statuses
        assert not unexplained, unexplained[:3]
        assert actions["refused"] > repeats(8000), actions
        assert actions["failed"] == 0, actions
        # the service is as well as before
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/readyz")).status_code == 200
        plain = json.dumps({**BASES[0], "metadata": {"name": "after-the-storm"}})
        (result,) = (await client.post("/v1/apply", content=plain)).json()["results"]
        assert result["action"] == "created"


class Fold(Protocol):
    """What every fold has."""

    def apply(self, stored: StoredEvent) -> object: ...


class Subject(NamedTuple):
    """A fold under test, and what its state can be told apart by."""

    fold: Callable[[StoredEvent], object]
    position: Callable[[], int]
    fingerprint: Callable[[], object]


def subjects() -> dict[str, Subject]:
    cluster, view = ClusterState(), ManagerView()
    scheduler, projection = SchedulerState(frameworks()), Projection()
    return {
        "state": Subject(cluster.apply, lambda: cluster.position, cluster.hash),
        "manager": Subject(view.fold, lambda: view.state.position, lambda: view.state.hash()),
        "scheduler": Subject(partial(fold, scheduler), lambda: scheduler.log.position, lambda: sorted(scheduler.pods)),
        "projector": Subject(projection.apply, lambda: projection.position, lambda: projection.totals),
    }


def malformed(rng: random.Random, event: StoredEvent, seq: int) -> StoredEvent:
    """An event with a mutated body, damaged bytes, changed headers, or on another aggregate."""
    body, headers, ref = event.body, dict(event.headers), event.ref
    match rng.randrange(5):
        case 0:
            body = damaged(rng, body)
        case 1:
            body = rng.choice(STRANGE_TEXTS)
        case 2:
            name = rng.choice(sorted(headers))
            headers[name] = rng.choice(["", "0", "-1", "99999", "x" * 500, "PodPlaced", "NodeSpecAdded", "ü", "1.5"])
        case 3:
            ref = AggregateRef(rng.choice(["pod", "node", "podspec", "nosuchkind", ""]), ref.id)
        case _:
            with contextlib.suppress(msgspec.DecodeError):
                body = json.dumps(mutated(rng, msgspec.json.decode(body))).encode()
    return StoredEvent(seq, ref, headers, body, event.stored_at_ns)


@pytest.mark.parametrize("name", ["state", "manager", "scheduler", "projector"])
def test_malformed_events_never_crash_a_fold(name: str) -> None:
    rng = random.Random(20261121)
    good = history(every_kind_once())
    subject = subjects()[name]
    for event in good:
        subject.fold(event)
    refused = accepted = 0
    for number in range(EVENTS):
        event = malformed(rng, rng.choice(good), subject.position() + 1)
        before = (subject.position(), subject.fingerprint()) if number % 50 == 0 else None
        try:
            subject.fold(event)
            accepted += 1
        except (UnreadableEvent, InvalidInput) as error:
            refused += 1
            reason = str(error)
            if not reason or (before is not None and before != (subject.position(), subject.fingerprint())):
                pytest.fail(f"event {number} was refused without a reason or changed the state: {reason!r}")

    assert refused > EVENTS // 3
    assert accepted > repeats(100)
