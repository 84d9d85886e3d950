"""What device plugins of vendors read from a pod, and the locks of nodes."""

from datetime import UTC, datetime, timedelta

import pytest
from koordcore.protocol import keys
from koordcore.protocol.hardware.vendor_devices import NodeLock, node_lock_of, parse_node_lock, vendor_annotations
from koordcore.protocol.resource_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koordcore.values.allocation import AllocatedDevice

GIB = 1 << 30
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def card(minor: int, *, percent: int = 100, template: str = "") -> AllocatedDevice:
    amounts = {GPU_CORE: percent, GPU_MEMORY_RATIO: percent, GPU_MEMORY: percent * 20 * GIB // 100}
    return AllocatedDevice(type="gpu", minor=minor, id=f"GPU-{minor}", amounts=amounts, template=template)


def written(*devices: AllocatedDevice, vendor: str = "nvidia", provider: str = "") -> dict[str, str]:
    return vendor_annotations(devices, vendor=vendor, isolation_provider=provider, node="n1", at_ns=7)


def test_every_vendor_gets_the_time_and_the_minor_numbers_of_the_gpus_only() -> None:
    rdma = AllocatedDevice(type="rdma", minor=5, id="r", amounts={})
    found = written(card(3), card(1), rdma)
    assert found == {
        "scheduling.koordinator.sh/bind-timestamp": "7",
        "scheduling.koordinator.sh/gpu-minors": "1,3",
    }
    assert written(rdma) == {}


def test_huawei_names_whole_cards_or_a_slice() -> None:
    whole, slice_ = written(card(0), card(1), vendor="huawei"), written(card(2, template="vir04"), vendor="huawei")
    assert (whole["huawei.com/npu-core"], whole["huawei.com/Ascend310P"]) == ("0,1", "Ascend310P-0,Ascend310P-1")
    assert (slice_["huawei.com/npu-core"], slice_["predicate-time"]) == ("2-vir04", "7")


def test_cambricon_and_metax_describe_shared_cards_only() -> None:
    cambricon, metax = written(card(2, percent=30), vendor="cambricon"), written(card(2, percent=30), vendor="metax")
    assert (cambricon["CAMBRICON_DSMLU_PROFILE"], cambricon["CAMBRICON_DSMLU_ASSIGHED"]) == ("2_30_24", "false")
    assert metax["metax-tech.com/gpu-devices-allocated"] == '[[{"uuid":"GPU-2","compute":30,"vRam":6144}]]'
    assert node_lock_of(cambricon) == "cambricon.com/dsmlu.lock"
    assert node_lock_of(metax) == "hami.io/mutex.lock"
    for vendor in ("cambricon", "metax"):
        assert node_lock_of(written(card(2), vendor=vendor)) == ""


def test_only_shared_pods_of_hami_core_get_the_label_with_their_node() -> None:
    assert written(card(0, percent=30), provider="HAMi-core")[keys.HAMI_VGPU_NODE] == "n1"
    assert keys.HAMI_VGPU_NODE not in written(card(0), provider="HAMi-core")
    assert keys.HAMI_VGPU_NODE not in written(card(0, percent=30))


def test_a_lock_expires_after_five_minutes() -> None:
    lock = parse_node_lock(NodeLock(NOW, "default", "p").text())
    assert lock is not None
    assert lock == NodeLock(NOW, "default", "p")
    assert not lock.is_expired(NOW + timedelta(seconds=300))
    assert lock.is_expired(NOW + timedelta(seconds=301))


@pytest.mark.parametrize("text", ["", "p", "never,default,p", "2026-03-01T12:00:00,default,p", "a,b,c,d"])
def test_a_text_of_another_form_is_not_a_lock(text: str) -> None:
    assert parse_node_lock(text) is None
