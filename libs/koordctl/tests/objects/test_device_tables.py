"""`koord get devices` and `koord top gpu`."""

from koordcore.events.node_ledger import PodOnNode
from koordcore.stories.device_cards import cards_of
from koordcore.stories.hardware import owners_of
from koordcore.values.allocation import AllocatedDevice, Allocation
from koordctl.objects.devices import GpuSort, NodeDevices, device_rows, gpu_rows, gpu_summary
from support.hardware import GPU_MEMORY, device_document


def nodes() -> list[NodeDevices]:
    half = {"koordinator.sh/gpu-memory-ratio": 50, "koordinator.sh/gpu-memory": GPU_MEMORY // 2}
    gpus = tuple(AllocatedDevice(type="gpu", minor=1, amounts=half) for _ in range(1))
    pod = PodOnNode(
        uid="u", namespace="lab", name="nb", requests={}, qos="LS", kube_qos="Burstable", priority_class="koord-prod",
        allocation=Allocation(devices=gpus),
    )  # fmt: skip
    document = device_document("n1", gpus=2)
    cards, _ = cards_of(document, {"u": pod})
    return [NodeDevices("n1", cards, list(owners_of({"u": pod})))]


def test_every_device_has_a_row_with_its_holders() -> None:
    assert [list(row) for row in device_rows(nodes())] == [
        ["n1", "gpu", 0, "GPU-00", 0, "pcie-0", "healthy", "0%", None, None],
        ["n1", "gpu", 1, "GPU-01", 1, "pcie-0", "healthy", "50%", None, "lab/nb 50%"],
        ["n1", "rdma", 0, "0000:a0:00.0", 0, "pcie-0", "healthy", "0%", "0/4", None],
    ]


def test_gpus_are_sorted_by_what_is_given_or_free() -> None:
    orders: dict[GpuSort, list[int]] = {"given": [1, 0], "free": [0, 1], "name": [0, 1]}
    for sort, minors in orders.items():
        assert [row[1] for row in gpu_rows(nodes(), sort)] == minors
    assert gpu_rows(nodes(), "given")[0][3:7] == ("50%", "50%", "80.0Gi", "40.0Gi")
    assert gpu_summary(nodes()) == "2 GPUs: 1 free, 0 given completely, 1 given in part (0.5 GPUs free on these)"
