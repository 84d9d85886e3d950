"""What several tests of the agent need: pods as a kubelet tells of them, and texts that are not what they should be."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from koord_agent.domain.node.pods import AgentPod, agent_pod_from_json


def colocated_pod(uid: str, qos: str) -> AgentPod:
    """A running pod of 2 cores; a best-effort one asks for batch resources."""
    resource = "kubernetes.io/batch-" if qos == "BE" else ""
    amounts = {f"{resource}cpu": "2", f"{resource}memory": "1000000"}
    statuses: list[dict[str, Any]] = [{"name": "c", "containerID": f"containerd://{uid}-c", "state": {"running": {}}}]
    return agent_pod_from_json(
        {
            "metadata": {
                "name": uid,
                "namespace": "default",
                "uid": uid,
                "labels": {"koordinator.sh/qosClass": qos},
            },
            "spec": {"containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]},
            "status": {
                "phase": "Running",
                "qosClass": "BestEffort" if qos == "BE" else "Burstable",
                "containerStatuses": statuses,
            },
        }
    )


def limited_pod(
    uid: str,
    qos: str,
    limits: Mapping[str, str],
    *,
    in_force: Mapping[str, str] | None = None,
    state: str = "running",
    containers: int = 1,
    **annotations: str,
) -> AgentPod:
    """A pod whose containers have these limits and equal requests; their ids are `<uid>-0`, `<uid>-1` ...

    Args:
        in_force: Limits in the status of the containers, while a resize waits; None for a kubelet without resizes.
        state: State of the last container; "" if it is not created. The others run.
    """
    names = [f"{uid}-{number}" for number in range(containers)]
    states = ["running"] * (containers - 1) + [state]
    statuses: list[dict[str, Any]] = []
    for name, of_it in zip(names, states, strict=True):
        statuses.append({"name": name})
        if in_force is not None:
            statuses[-1]["resources"] = {"limits": dict(in_force)}
        if of_it:
            statuses[-1] |= {"containerID": f"containerd://{name}", "state": {of_it: {}}}
    resources = {"requests": dict(limits), "limits": dict(limits)}
    return agent_pod_from_json(
        {
            "metadata": {
                "name": uid,
                "namespace": "default",
                "uid": uid,
                "labels": {"koordinator.sh/qosClass": qos} if qos else {},
                "annotations": annotations,
            },
            "spec": {"containers": [{"name": name, "resources": resources} for name in names]},
            "status": {
                "phase": "Running",
                "qosClass": "BestEffort" if qos == "BE" else "Guaranteed",
                "containerStatuses": statuses,
            },
        }
    )


def corrupted(text: bytes, random_: random.Random, junk: Sequence[str]) -> bytes:
    """A text as a bad disk, a bad kernel or a bad day leaves it."""
    data = bytearray(text)
    for _ in range(random_.randint(1, 4)):
        place = random_.randint(0, len(data))
        match random_.randint(0, 5):
            case 0:
                del data[place : place + random_.randint(0, 20)]
            case 1:
                data[place:place] = random_.choice(junk).encode()
            case 2:
                data[place : place + 1] = bytes([random_.randint(0, 255)])
            case 3:
                data[place:place] = data[: random_.randint(0, len(data))]
            case 4:
                data = bytearray(random_.choice(junk).encode())
            case _:
                data = bytearray(random_.randbytes(random_.randint(0, 80)))
    return bytes(data)
