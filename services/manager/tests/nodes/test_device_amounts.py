"""A node offers the devices that the scheduler can give to pods: entries that it ignores count nowhere."""

from typing import Any

import pytest
from koord_manager.domain.controllers.node_resources.devices import device_resources
from koordcore.protocol.hardware.devices import device_from
from koordcore.protocol.resource_names import GPU_CORE


def gpu(minor: object, **fields: Any) -> dict[str, Any]:
    return {"type": "gpu", "minor": minor, "health": True, "resources": {GPU_CORE: "100"}, **fields}


@pytest.mark.parametrize(
    ("devices", "cards"),
    [
        ([gpu(0), gpu(1)], 2),
        ([gpu(0), gpu(0), gpu(1)], 2),
        ([gpu(0), gpu(300)], 1),
        ([gpu(0), gpu(1, topology={"nodeID": 100})], 1),
        ([gpu(0), None], 1),
        ([gpu(0), gpu(1, health="yes")], 1),
        ([gpu(0), gpu("1")], 1),
        ([gpu(0), gpu(1, type="")], 1),
        ([gpu(0), gpu(1, resources={GPU_CORE: "many"})], 1),
    ],
)
def test_ignored_entries_neither_count_nor_hide_the_others(devices: list[Any], cards: int) -> None:
    document = {"metadata": {"name": "a"}, "spec": {"devices": devices}}
    assert device_resources(device_from(document), sync_shared_gpus=False).resources[GPU_CORE] == 100 * cards


def test_an_object_without_readable_devices_offers_none() -> None:
    for document in ({"metadata": {"name": "a"}}, {"metadata": {"name": "a"}, "spec": {"devices": "x"}}):
        assert device_resources(device_from(document), sync_shared_gpus=False).resources == {}
    assert device_from({"metadata": {"labels": 7}}) is None
