"""20,000 malformed Reservations, as an API server lets them through: the scheduler passes them over and goes on."""

import json
import random
from collections import Counter
from typing import Any, cast

import pytest
from koordcore.protocol import keys
from koordcore.state.aggregates import NodeLedger
from koordcore.state.allocation_rules import broken_rules
from koordcore.values.timestamps import unix_seconds
from support.depth import repeats
from support.mutations import mutated
from support.scheduler.reservations import CREATED, ReservingScheduler, fold_of, reservation, reserve, status, sums
from support.scheduler.scheduling import SmallLog, node, pod, with_metadata

DOCUMENTS = repeats(20_000)
AT_ONCE = 100
NAMES = 12
T0 = unix_seconds(CREATED)

pytestmark = [pytest.mark.slow]

BASE = reservation(
    requests={"cpu": "100m", "memory": "1Mi"},
    owners=[
        {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}},
        {"object": {"name": "one", "namespace": "default"}, "controller": {"name": "two", "controller": True}},
    ],
    annotations={
        keys.RESERVATION_RESTRICTED_OPTIONS: '{"resources":["cpu"]}',
        keys.NODE_RESERVATION: '{"resources":{"cpu":"10m"}}',
        keys.RESERVATION_RESIZE_ALLOCATABLE: '{"resources":{"cpu":"200m"}}',
    },
    labels={keys.RESERVATION_ORDER: "3", keys.SUB_PRIORITY: "7"},
    template={"nodeName": "n", "tolerations": [{"key": "gpu", "operator": "Exists"}], "priority": 5},
    expires="2026-06-01T00:00:00Z",
    allocateOnce=False,
    allocatePolicy="Restricted",
    preAllocation=True,
    preAllocationPolicy={"mode": "Default", "enableMultiple": True},
    taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}],
)

WISHES: dict[str, Any] = {
    keys.RESERVATION_AFFINITY: {
        "name": "r1",
        "reservationSelector": {"team": "a"},
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "reservationSelectorTerms": [{"matchExpressions": [{"key": "team", "operator": "Exists"}]}]
        },
        "tolerations": [{"key": "team", "operator": "Exists"}],
    },
    keys.EXACT_MATCH_RESERVATION: {"resourceNames": ["cpu"]},
}


def malformed(rng: random.Random, number: int) -> dict[str, Any]:
    """A mutated Reservation; an API server guarantees its kind, its name and its uid."""
    found: Any = mutated(rng, BASE)
    document = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    name = f"r{number % NAMES}"
    given: Any = document.get("metadata")
    metadata = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    same = {"apiVersion": BASE["apiVersion"], "kind": BASE["kind"]}
    return {**document, **same, "metadata": {**metadata, "name": name, "uid": f"uid-{name}"}}


def wishes(rng: random.Random) -> dict[str, str]:
    """Mutated annotations of a pod about Reservations."""
    return {key: json.dumps(mutated(rng, value)) for key, value in WISHES.items() if rng.random() < 0.3}


@pytest.mark.fuzz
def test_malformed_reservations_stop_nothing() -> None:
    rng = random.Random(20261123)
    log = SmallLog()
    for name in ("n", "m"):
        log.add_node(node(name, cpu="4"))
    scheduler = ReservingScheduler(log)
    phases: Counter[str] = Counter()
    for number in range(DOCUMENTS):
        reserve(log, malformed(rng, number))
        if number % AT_ONCE == 0:
            owner = f"p{number}"
            log.add_pod(with_metadata(pod(owner, {"cpu": "50m"}), labels={"app": "web"}, annotations=wishes(rng)))
            scheduler.live(T0 + number / 100)
            log.remove_pod(owner)
    scheduler.live(T0 + 600)
    state = fold_of(log)
    phases.update(status(log, f"r{number}").phase for number in range(NAMES))
    for ledger in state.of_kind(NodeLedger).values():
        assert ledger.requested == sums(ledger)
        assert ledger.requested.get("cpu", 0) <= 4000
    assert broken_rules(state) == {}
    assert scheduler.state.cluster.warnings, "those that cannot be read are named"

    reserve(log, reservation("good", {"cpu": "1"}, owners=[{"labelSelector": {"matchLabels": {"app": "good"}}}]))
    log.add_pod(with_metadata(pod("owner", {"cpu": "1"}), labels={"app": "good"}))
    scheduler.live(T0 + 1200)
    assert [each.uid for each in status(log, "good").owners] == ["owner"]
