"""The agent's process answers hooks, registers, and tells about it, while the bus is away."""

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
from koord_agent.compose import compose
from koord_agent.settings import AgentSettings
from koordcore.runtime_api.hooks import messages_of_call
from support.running_service import running_service
from support.until import until

RPC = "PreCreateContainerHook"


def ask(socket: Path) -> Any:
    request_class, response_class = messages_of_call(RPC)
    request = request_class(
        pod_labels={"koordinator.sh/qosClass": "LSR"},
        pod_annotations={"scheduling.koordinator.sh/resource-status": '{"cpuset":"1"}'},
    )
    with grpc.insecure_channel(f"unix://{socket}", options=[("grpc.enable_http_proxy", 0)]) as channel:
        unary: Any = channel.unary_unary
        call = unary(f"/runtime.v1alpha1.RuntimeHookService/{RPC}", response_deserializer=response_class.FromString)
        return call(request.SerializeToString(), timeout=60, wait_for_ready=True)


async def test_the_agent_answers_registers_and_tells_without_a_bus(tmp_path: Path) -> None:
    socket, folder = tmp_path / "koordlet.sock", tmp_path / "hookserver.d"
    settings = AgentSettings.model_validate(
        {
            "host_mode": "linux",
            "node_name": "n",
            "nats_urls": ("nats://127.0.0.1:1",),
            "http_port": 0,
            "runtime_hooks_addr": socket,
            "runtime_hooks_host_endpoint": "/run/koordlet.sock",
            "runtime_hooks_failure_policy": "Fail",
            "runtime_hooks_config_path": folder,
            "runtime_hooks_disable_stages": ("PreUpdateContainerResources",),
        }
    )
    folder.mkdir()
    async with running_service(settings, compose) as shell:
        answer = await asyncio.to_thread(ask, socket)
        assert (answer.container_resources.cpuset_cpus, answer.container_resources.cpu_quota) == ("1", -1)
        registered = folder / "koordlet.json"
        await until(registered.exists, "the registration")
        assert json.loads(registered.read_text()) == {
            "remote-endpoint": "/run/koordlet.sock",
            "failure-policy": "Fail",
            "runtime-hooks": ["PreCreateContainer", "PreRunPodSandbox"],
        }

        def facts() -> float:
            return shell.metrics.registry.get_sample_value("koord_agent_outbox_facts") or 0.0

        await until(lambda: facts() >= 3, "facts: the start, the registration, and what the hooks changed")
    assert registered.exists(), "a proxy with the policy Ignore passes calls while the agent is away"
