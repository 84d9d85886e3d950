"""Reservations at the door of `koord apply`: 20,000 malformed ones are refused with field and rule."""

import copy
import random
from collections import Counter
from typing import Any

import pytest
from koord_manager.domain.admission.options import Options
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.documents.apply import decide_apply
from koord_manager.domain.documents.warnings import document_warnings
from koordcore.events.objects import CustomObjectObserved
from koordcore.protocol.manifests import InvalidManifest, shape_manifest
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.reservations import reservation_from_json, reserve_pod
from support.depth import repeats
from support.mutations import mutated

Json = dict[str, Any]
SEED = 20261123
MALFORMED = repeats(20_000)
MUTATED = repeats(5_000)

VALID: Json = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "Reservation",
    "metadata": {"name": "web", "labels": {"scheduling.koordinator.sh/reservation-order": "5"}},
    "spec": {
        "owners": [
            {"object": {"namespace": "default", "name": "web-0"}},
            {"controller": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u"}},
            {"labelSelector": {"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}},
        ],
        "ttl": "1h30m",
        "expires": "2026-11-24T00:00:00Z",
        "allocateOnce": False,
        "allocatePolicy": "Restricted",
        "taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}],
        "template": {
            "metadata": {"namespace": "default", "labels": {"app": "web"}},
            "spec": {
                "nodeName": "node-1",
                "priority": 9000,
                "tolerations": [{"operator": "Exists"}],
                "containers": [
                    {"name": "main", "resources": {"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"cpu": "4"}}}
                ],
            },
        },
    },
}  # fmt: skip

BREAKS: list[tuple[str, tuple[str | int, ...], list[Any]]] = [
    ("spec.owners", ("spec", "owners"), [[], "all", {}, 3, True, ["web"]]),
    ("spec.owners[0]", ("spec", "owners", 0), [{}, "web", 7, [], {"object": {}} | {"object": "web"}]),
    ("spec.owners[1].controller", ("spec", "owners", 1, "controller"), [{"kind": "Job"}, "Job", [], 1]),
    ("spec.owners[1].controller", ("spec", "owners", 1, "controller", "controller"), ["yes", 1, {}]),
    (
        "spec.owners[2].labelSelector",
        ("spec", "owners", 2, "labelSelector", "matchExpressions", 0),
        [
            {"key": "tier", "operator": "Is"},
            {"key": "tier", "operator": "In"},
            {"key": "a b", "operator": "Exists"},
            {"operator": "Exists"},
            {"key": "tier", "operator": "Exists", "values": ["x"]},
        ],
    ),
    ("spec.owners[2].labelSelector", ("spec", "owners", 2, "labelSelector", "matchLabels"), [{"a b": "c"}, ["a"]]),
    ("spec.ttl", ("spec", "ttl"), ["1d", "soon", "", "-5m", 30, {}, "1h 5m", "9" * 300 + "s", "1e3s"]),
    ("spec.expires", ("spec", "expires"), ["tomorrow", "2026-13-01T00:00:00Z", 0, "", "2026-11-24"]),
    ("spec.allocateOnce", ("spec", "allocateOnce"), ["true", 1, []]),
    ("spec.allocatePolicy", ("spec", "allocatePolicy"), ["Default", "restricted", 1, {}]),
    ("spec.unschedulable", ("spec", "unschedulable"), ["no", 0]),
    ("spec.preAllocation", ("spec", "preAllocation"), ["no", 0]),
    ("spec.preAllocationPolicy", ("spec", "preAllocationPolicy"), [{"mode": "Node"}, {"enableMultiple": "x"}, []]),
    ("spec.taints[0]", ("spec", "taints", 0, "effect"), ["Never", "", 3]),
    ("spec.taints[0]", ("spec", "taints", 0, "key"), ["a b", "", 3, "x" * 400]),
    ("spec.taints[0]", ("spec", "taints", 0, "value"), ["a b", "x" * 64, []]),
    ("spec.template", ("spec", "template"), [{}, "pod", [], 3, {"spec": {}}, {"spec": {"containers": []}}]),
    ("spec.template.spec", ("spec", "template", "spec", "containers"), [[], [{}], {"name": "a"}, "a", [3]]),
    (
        "spec.template.spec.containers[0].resources.requests",
        ("spec", "template", "spec", "containers", 0, "resources", "requests", "cpu"),
        ["1C", "-1", "9", "NaN", {}, [], "4 cores", 10**30],
    ),
    (
        "spec.template.spec.containers[0].resources.requests",
        ("spec", "template", "spec", "containers", 0, "resources", "requests"),
        [{"cores": "1"}, {"a b/c": "1"}, ["cpu"], "4", {"example.com/gpu": "0.5"}],
    ),
    ("spec.template.spec.nodeName", ("spec", "template", "spec", "nodeName"), ["a b", "-", 3, "x" * 300]),
    ("spec.template.spec.priority", ("spec", "template", "spec", "priority"), [2**31, "high", 0.5]),
    ("spec.template.spec.tolerations", ("spec", "template", "spec", "tolerations"), [[{"operator": "Is"}], [{}], 3]),
    ("spec.template.metadata", ("spec", "template", "metadata", "labels"), [{"a b": "c"}, {"a": "b c"}, {"a": 1}, []]),
    ("spec.template.metadata", ("spec", "template", "metadata", "namespace"), ["A_B", 3, "x" * 64]),
    ("metadata", ("metadata", "name"), ["", "A_B", "x" * 254, 3, "a/b"]),
    ("spec", ("spec",), [[], "x", 3]),
]  # fmt: skip
"""Path that the refusal must name, place of the change, and values that make the document malformed."""


def applied(document: Any, *, uid: str = "r-1") -> Json:
    """The object as it enters the log. Raises InvalidManifest if the document is refused."""
    decided = decide_apply(
        ManagerView(), shape_manifest(document), new_uid=uid, now="2026-11-23T00:00:00.000000Z", options=Options()
    )
    assert decided.refusal is None
    event = decided.drafts[0].event
    assert isinstance(event, CustomObjectObserved)
    return dict(event.object)


def broken(rng: random.Random, path: tuple[str | int, ...], value: Any) -> Json:
    """A copy of a varied valid document in which one value is malformed."""
    document: Any = copy.deepcopy(VALID)
    document["metadata"]["name"] = f"web-{rng.randrange(10**6)}"
    for field in ("ttl", "expires", "allocatePolicy", "taints"):
        if rng.random() < 0.3 and path[:2] != ("spec", field):
            del document["spec"][field]
    holder = document
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = copy.deepcopy(value)
    return document


def test_the_valid_document_is_accepted() -> None:
    stored = applied(VALID)

    assert stored["metadata"]["uid"] == "r-1"
    assert stored["metadata"]["creationTimestamp"] == "2026-11-23T00:00:00.000000Z"
    assert pod_requests(reserve_pod(reservation_from_json(stored))) == {"cpu": 4000, "memory": 8 << 30}


@pytest.mark.fuzz
def test_malformed_reservations_are_refused_with_field_and_rule() -> None:
    rng = random.Random(SEED)
    named: Counter[str] = Counter()
    for _ in range(MALFORMED):
        where, path, values = rng.choice(BREAKS)
        value = rng.choice(values)

        with pytest.raises(InvalidManifest) as refused:
            applied(broken(rng, path, value))

        found = refused.value.violations
        assert all(violation.rule and violation.path for violation in found), (path, value, found)
        assert any(violation.path.startswith(where) for violation in found), (where, value, str(refused.value))
        named[where] += 1
    assert set(named) == {where for where, _, _ in BREAKS}


@pytest.mark.fuzz
def test_a_mutated_reservation_is_refused_with_a_reason_or_can_be_scheduled() -> None:
    rng = random.Random(SEED)
    outcomes: Counter[str] = Counter()
    for _ in range(MUTATED):
        document = mutated(rng, VALID)
        try:
            stored = applied(document)
        except InvalidManifest as refused:
            outcomes["refused" if all(violation.rule for violation in refused.violations) else "unexplained"] += 1
            continue
        outcomes["accepted"] += 1
        if stored["kind"] == "Reservation":
            pod_requests(reserve_pod(reservation_from_json(stored)))
    assert outcomes["unexplained"] == 0
    assert outcomes["refused"] > MUTATED // 5, outcomes
    assert outcomes["accepted"] > MUTATED // 20, outcomes


def expiring(**spec: Any) -> Json:
    return {**VALID, "spec": {**{key: value for key, value in VALID["spec"].items() if key != "ttl"}, **spec}}


@pytest.mark.parametrize(
    ("document", "is_warned"), [(expiring(), True), (expiring(ttl="48h"), False), (expiring(expires=None), False)]
)
def test_an_end_without_a_ttl_is_warned_about(document: Json, is_warned: bool) -> None:
    warned = [text for text in document_warnings(document) if text.startswith("spec.ttl")]

    assert bool(warned) is is_warned
