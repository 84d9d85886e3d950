"""Which requests of a pod the agent counts, and which are in force, while the kubelet resizes it."""

from typing import Any

import pytest
from koord_agent.domain.kernel.cgroup_files import milli_to_shares
from koord_agent.domain.node.pods import AgentPod, agent_pod_from_json
from koord_agent.domain.strategies.pod_resources import pod_shares

GIB = 1 << 30


def resized(
    wanted: str, actual: str | None, allocated: str | None = None, *conditions: dict[str, str], **spec: Any
) -> AgentPod:
    status: dict[str, Any] = {"name": "main", "containerID": "containerd://main"}
    if actual is not None:
        status["resources"] = {"requests": {"cpu": actual, "memory": "1Gi"}}
        status["allocatedResources"] = {"cpu": allocated or actual, "memory": "1Gi"}
    requests = {"cpu": wanted, "memory": "1Gi"}
    return agent_pod_from_json(
        {
            "metadata": {"uid": "p", "name": "p", "namespace": "default"},
            "spec": {"nodeName": "n", "containers": [{"name": "main", "resources": {"requests": requests}}], **spec},
            "status": {"phase": "Running", "containerStatuses": [status], "conditions": list(conditions)},
        }
    )


@pytest.mark.parametrize(
    ("pod", "counted", "in_force"),
    [
        (resized("3", None), 3000, 3000),
        (resized("1", "1"), 1000, 1000),
        (resized("3", "1", "1", {"type": "PodResizePending", "reason": "Deferred"}), 3000, 1000),
        (resized("3", "1", "3"), 3000, 1000),
        (resized("1", "3"), 3000, 3000),
        (resized("64", "1", "1", {"type": "PodResizePending", "reason": "Infeasible"}), 1000, 1000),
        (resized("3", "1", overhead={"cpu": "500m"}), 3500, 1500),
    ],
)
def test_the_agent_counts_as_the_scheduler_and_sets_what_is_in_force(
    pod: AgentPod, counted: int, in_force: int
) -> None:
    assert pod.requests == {"cpu": counted, "memory": GIB}
    assert pod.requests_in_force == {"cpu": in_force, "memory": GIB}
    assert pod_shares(pod) == milli_to_shares(in_force)
    [container] = pod.containers
    assert container.requests == {"cpu": in_force - pod.overhead.get("cpu", 0), "memory": GIB}


def test_a_deferred_resize_of_the_pod_itself_is_not_in_force() -> None:
    pod = agent_pod_from_json(
        {
            "metadata": {"uid": "p", "name": "p", "namespace": "default"},
            "spec": {
                "nodeName": "n",
                "resources": {
                    "requests": {"cpu": "4", "memory": "1Gi", "hugepages-2Mi": "2Mi"},
                    "limits": {"cpu": "8", "memory": "4Gi", "hugepages-2Mi": "2Mi"},
                },
                "containers": [{"name": "main"}],
            },
            "status": {
                "phase": "Running",
                "conditions": [{"type": "PodResizePending", "reason": "Deferred"}],
                "containerStatuses": [{"name": "main", "containerID": "containerd://main"}],
                "allocatedResources": {"cpu": "1", "memory": "1Gi"},
                "resources": {
                    "requests": {"cpu": "1", "memory": "1Gi"},
                    "limits": {"cpu": "2", "memory": "2Gi"},
                },
            },
        }
    )
    assert pod.requests["cpu"] == 4000  # as the scheduler counts it
    assert pod.requests_in_force == {"cpu": 1000, "memory": GIB, "hugepages-2Mi": 2 << 20}
    assert pod.limits == {"cpu": 2000, "memory": 2 * GIB, "hugepages-2Mi": 2 << 20}
    assert pod_shares(pod) == milli_to_shares(1000)
