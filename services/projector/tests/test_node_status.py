"""Bad conditions and taints of nodes as short texts."""

import pytest
from koord_projector.fold.node_status import conditions_text, taints_text
from koordcore.protocol.objects import Node, NodeCondition, NodeSpec, NodeStatus, Taint


@pytest.mark.parametrize(
    ("conditions", "text"),
    [
        ({}, ""),
        ({"Ready": "True", "DiskPressure": "False", "EtcdIsVoter": "True"}, ""),
        ({"Ready": "False"}, "NotReady"),
        ({"Ready": "Unknown", "MemoryPressure": "Unknown"}, "NotReady"),
        (
            {"MemoryPressure": "True", "Ready": "True", "NetworkUnavailable": "True"},
            "MemoryPressure NetworkUnavailable",
        ),
    ],
)
def test_bad_conditions_are_named(conditions: dict[str, str], text: str) -> None:
    found = [NodeCondition(type=type_, status=status) for type_, status in conditions.items()]
    assert conditions_text(Node(status=NodeStatus(conditions=found))) == text


def test_taints_are_written_as_kubectl_does_and_cut() -> None:
    taints = [Taint(key="dedicated", value="gpu", effect="NoSchedule"), Taint(key="spot", effect="NoExecute")]
    assert taints_text(Node(spec=NodeSpec(taints=taints))) == "dedicated=gpu:NoSchedule spot:NoExecute"
    many = [Taint(key="k" * 300, effect="NoSchedule")] * 30
    assert taints_text(Node(spec=NodeSpec(taints=many))).split(" ") == ["k" * 200] * 20
