"""The file of nodes: its two kinds, the shard of it, and the simulated devices that labels name."""

from pathlib import Path

import pytest
from koord_agent.simulator.nodes import SimulatedNode, read_nodes, shard_of
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

GIB = 1 << 30


def test_nodes_files_of_both_kinds(tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    file.write_text(
        '{"apiVersion":"v1","kind":"List","items":[{"kind":"Node","metadata":{"name":"a"},'
        '"status":{"capacity":{"cpu":"1500m","memory":"2Gi"}}}]}'
    )
    (node,) = read_nodes(file)
    assert (node.name, node.cpu_milli, node.memory_bytes) == ("a", 1500, 2 * GIB)
    file.write_text('{"node":"a","cpu_milli":1,"memory_bytes":2}\n\n{"node":"b","cpu_milli":1,"memory_bytes":2}\n')
    nodes = read_nodes(file)
    assert [n.name for n in shard_of(nodes, "2/2")] == ["b"]
    file.write_text('{"node":"a"}\n')
    with pytest.raises(InvalidInput, match="cpu_milli"):
        read_nodes(file)
    with pytest.raises(InvalidInput):
        shard_of(nodes, "3/2")


def test_labels_of_a_node_name_its_simulated_devices(tmp_path: Path) -> None:
    file = tmp_path / "nodes"

    def nodes_with(**labels: str) -> list[SimulatedNode]:
        named = {f"koordstream.io/simulated-{name.replace('_', '-')}": text for name, text in labels.items()}
        capacity = {"cpu": "8", "memory": "2Gi"}
        item = {"kind": "Node", "metadata": {"name": "a", "labels": named}, "status": {"capacity": capacity}}
        file.write_bytes(codec.encode({"kind": "List", "items": [item]}))
        return read_nodes(file)

    [node] = nodes_with(gpus="3", rdma_functions="2")
    assert (node.gpus, node.rdma_functions) == (3, 2)
    assert nodes_with(rdma_functions="2")[0].rdma_functions == 0
    for text in ("8", "-1", "many"):
        with pytest.raises(InvalidInput, match="virtual functions up to 7"):
            nodes_with(gpus="3", rdma_functions=text)
