"""Device objects, hints and foreign allocations that are malformed or overlap: refused or ignored with the reason."""

import copy
import json
from random import Random
from typing import Any, cast

import pytest
from koord_scheduler.domain.framework.cluster import Cluster
from koord_scheduler.domain.plugins.books import make_books
from koord_scheduler.domain.plugins.device.pod_devices import PodDevices
from koordcore.protocol import keys
from support.depth import repeats
from support.scheduler.devices import CORE, RATIO, TABLE, board, device, gpu

JUNK: list[Any] = [
    None, "", "x", -1, 0, 1, 2**70, -(2**70), 1.5, True, False, [], {}, [None], {"": None},
    "1e400", "NaN", "10Gi", "-5", [[]], {"a": {"b": []}}, "\u0000", [1, "2", {}], "9" * 300,
]  # fmt: skip


def _paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at] if at else []
    if isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            found += _paths(item, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            found += _paths(item, (*at, index))
    return found


def _broken(random: Random, document: Any) -> Any:
    document = json.loads(json.dumps(document))
    for _ in range(random.choice([1, 1, 2, 4])):
        paths = _paths(document)
        if not paths:
            break
        path = random.choice(paths)
        parent = document
        try:
            for step in path[:-1]:
                parent = parent[step]
            if random.random() < 0.3:
                del parent[path[-1]]
            else:
                parent[path[-1]] = copy.deepcopy(random.choice(JUNK))  # a later step may change it
        except (KeyError, IndexError, TypeError):
            continue
    return document


@pytest.mark.fuzz
def test_malformed_device_documents_are_refused_or_read_with_a_warning() -> None:
    random = Random(7)
    whole = device("node", [*board(), gpu(8)], labels={keys.GPU_PARTITION_POLICY: "Honor"}, table=TABLE)
    whole["spec"]["devices"] = whole["spec"]["devices"][:3] + whole["spec"]["devices"][-3:]
    cluster, warned = Cluster(), 0
    devices = make_books(cluster).devices
    for _ in range(repeats(20_000)):
        document = _broken(random, whole)
        cluster.put_object("devices", document)
        warned += bool(cluster.warnings)
        for warning in cluster.warnings:
            assert len(warning) < 1000
        cluster.warnings.clear()
        for inventory in devices.by_node.values():
            for type_, cards in inventory.cards.items():
                assert [card.minor for card in cards] == sorted({card.minor for card in cards})
                assert all(card.type == type_ and min(card.total.values(), default=1) > 0 for card in cards)
        devices.by_node.clear()
    assert warned > repeats(5_000)


@pytest.mark.fuzz
def test_malformed_hints_are_refused_with_the_field() -> None:
    random = Random(3)
    hints = {
        "gpu": {"selector": {"matchLabels": {"a": "b"}}, "requiredTopologyScope": "PCIe"},
        "rdma": {"vfSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}},
    }
    refused = 0
    for _ in range(repeats(3_000)):
        for key, value in ((keys.DEVICE_ALLOCATE_HINT, hints), (keys.GPU_PARTITION_SPEC, {"ringBusBandwidth": "2Gi"})):
            found = PodDevices({"nvidia.com/gpu": 1}, {key: json.dumps(_broken(random, value))})
            if found.error:
                refused += 1
                assert key in found.error
    assert refused > repeats(500)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"gpu": 3}', '{"gpu": {"selector": 1}}'])
def test_a_hint_that_is_not_valid_json_refuses_the_pod(text: str) -> None:
    found = PodDevices({CORE: 50, RATIO: 50}, {keys.DEVICE_ALLOCATE_HINT: text})
    assert keys.DEVICE_ALLOCATE_HINT in found.error


def test_huge_requests_do_not_overflow() -> None:
    for name in ("koordinator.sh/gpu-memory", "nvidia.com/gpu", "koordinator.sh/rdma"):
        found = PodDevices({name: 100 * 10**30}, {})
        assert not found.error
