"""What a policy puts on its node: what is lent or decided now, nothing that was withdrawn."""

from koordcore.state.aggregates import NodeHealth, NodePolicyState, policy_annotations, policy_resources


def test_what_is_withdrawn_is_not_lent() -> None:
    policy = NodePolicyState(seq=1, mid_cpu_milli=0, mid_memory_bytes=5, devices={"koordinator.sh/gpu": 100})
    assert policy_resources(policy) == {
        "kubernetes.io/mid-cpu": 0,
        "kubernetes.io/mid-memory": 5,
        "koordinator.sh/gpu": 100,
    }
    assert policy_resources(NodePolicyState(seq=1)) == {}


def test_only_decided_annotations_are_named() -> None:
    health = NodeHealth(level="Healthy", abnormality=0.0, weight=100, reported_weight=100)
    assert policy_annotations(NodePolicyState(seq=1, health=health)) == {}
    policy = NodePolicyState(seq=1, cpu_normalization="1.20", amplification='{"cpu":1.20}')
    assert policy_annotations(policy) == {
        "node.koordinator.sh/cpu-normalization-ratio": "1.20",
        "node.koordinator.sh/resource-amplification-ratio": '{"cpu":1.20}',
    }
