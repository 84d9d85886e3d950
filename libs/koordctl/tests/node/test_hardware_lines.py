"""`koord explain`: the hardware of a node and what a pod was given of it, as lines."""

from koordcore.events.node_ledger import PodOnNode
from koordcore.stories.hardware import NodeHardware, node_hardware
from koordcore.values.allocation import AllocatedDevice, Allocation, VirtualFunction, ZoneAmounts
from koordctl.node.hardware import chosen_lines, hardware_lines
from support.hardware import device_document, topology_document

GIVEN = Allocation(
    cpuset="0-2,8-9",
    cpu_bind_policy="FullPCPUs",
    cpu_exclusive_policy="PCPULevel",
    zones=(ZoneAmounts(0, {"cpu": 5000, "memory": 1 << 31}),),
    devices=(
        AllocatedDevice(type="gpu", minor=1, id="GPU-01", amounts={"koordinator.sh/gpu-memory-ratio": 40}),
        AllocatedDevice(
            type="rdma",
            minor=0,
            amounts={"koordinator.sh/rdma": 1},
            virtual_functions=(VirtualFunction(0, "0000:a0:00.2"),),
        ),
    ),
)


def hardware() -> NodeHardware:
    web = PodOnNode(
        uid="u1", namespace="shop", name="web", requests={}, qos="LSR", kube_qos="Guaranteed",
        priority_class="koord-prod", allocation=GIVEN,
    )  # fmt: skip
    return node_hardware(
        "n1", node=None, topology=topology_document("n1"), device=device_document("n1", gpus=4), pods={"u1": web}
    )


def test_the_tree_says_who_holds_what() -> None:
    lines = list(hardware_lines(hardware()))
    assert lines == [
        "8 cores, 16 CPUs, 5 whole cores free",
        "socket 0",
        "  zone 0: 1 of 4 cores free, cpu 5 of 8 given, memory 2.0Gi of 64.0Gi given",
        "    CPUs 0-2,8-9  shop/web",
        "    CPUs 3,10-11  shared pools",
        "    switch pcie-0",
        "      gpu 0 GPU-00: free",
        "      gpu 1 GPU-01: 40% given (shop/web 40%)",
        "      rdma 0 0000:a0:00.0: 1% given (shop/web 1%), 1 of 4 virtual functions given",
        "socket 1",
        "  zone 1: 4 of 4 cores free, cpu 0 of 8 given, memory 0.0Gi of 64.0Gi given",
        "    CPUs 4-7,12-15  shared pools",
        "    switch pcie-1",
        "      gpu 2 GPU-02: free",
        "      gpu 3 GPU-03: free",
        "      rdma 1 0000:a1:00.0: free, 0 of 4 virtual functions given",
        "shop/web (LSR) holds CPUs 0-2,8-9 (FullPCPUs, PCPULevel); zone 0: cpu 5, memory 2.0Gi; gpu 1 40%; rdma 0 1%",
    ]


def test_a_placement_names_the_chosen_hardware_and_its_place() -> None:
    assert list(chosen_lines(GIVEN, hardware())) == [
        "CPUs 0-2,8-9 (FullPCPUs, PCPULevel): 2 whole cores and 1 CPU of other cores in zone 0",
        "zone 0: cpu 5, memory 2.0Gi",
        "gpu 1 GPU-01 (switch pcie-0, zone 0): gpu-memory-ratio 40",
        "rdma 0 (switch pcie-0, zone 0): rdma 1, virtual functions 0000:a0:00.2",
    ]
