"""The calls that a kubelet makes for one pod, through a CRI proxy and to a real containerd; for tests."""

from pathlib import Path
from typing import Any, Final

from koordcore.runtime_api.cri import cri_messages
from koordctl.stack.containers import IMAGE
from support.agent.cri import NODE_NAMESPACE
from support.criproxy import World

PARENT: Final = "/koord-kubelet-test"
NETWORK: Final = {"namespace_options": {"network": NODE_NAMESPACE}}
"""The network of the machine, so that no network plugin is needed."""


class Kubelet:
    """Starts one pod of one container step by step through the proxy; containerd has to be behind it."""

    def __init__(self, world: World, name: str = "web", uid: str = "uid-1") -> None:
        self._world = world
        self._metadata = {"name": name, "uid": uid, "namespace": "default"}
        self.sandbox = self.container = ""

    async def run_sandbox(self) -> None:
        answer = await self._world.call("RunPodSandbox", self._request("RunPodSandbox", config=self._pod()))
        self.sandbox = cri_messages()["RunPodSandboxResponse"].FromString(answer).pod_sandbox_id

    async def create(self) -> None:
        request = self._request(
            "CreateContainer",
            pod_sandbox_id=self.sandbox,
            config={
                "metadata": {"name": "main"},
                "image": {"image": IMAGE},
                "envs": [{"key": "A", "value": b"1"}],
                "linux": {"resources": {"cpu_shares": 100}, "security_context": NETWORK},
            },
            sandbox_config=self._pod(),
        )
        answer = await self._world.call("CreateContainer", request)
        self.container = cri_messages()["CreateContainerResponse"].FromString(answer).container_id

    async def start(self) -> None:
        await self._world.call("StartContainer", self._request("StartContainer", container_id=self.container))

    async def remove(self) -> None:
        for call, fields in (
            ("StopContainer", {"container_id": self.container}),
            ("RemoveContainer", {"container_id": self.container}),
            ("StopPodSandbox", {"pod_sandbox_id": self.sandbox}),
            ("RemovePodSandbox", {"pod_sandbox_id": self.sandbox}),
        ):
            await self._world.call(call, self._request(call, **fields))

    def shares(self) -> str:
        return Path("/sys/fs/cgroup/cpu", PARENT[1:], self.container, "cpu.shares").read_text().strip()

    def _request(self, call: str, **fields: Any) -> Any:
        return cri_messages()[f"{call}Request"](**fields)

    def _pod(self) -> Any:
        linux = {"cgroup_parent": PARENT, "security_context": NETWORK}
        return cri_messages()["PodSandboxConfig"](metadata=self._metadata, labels={"app": "web"}, linux=linux)
