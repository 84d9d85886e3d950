"""The proxy as a service: what hook servers change, and what happens when somebody is down."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from koord_criproxy.compose import compose
from koord_criproxy.hooks import asking
from koord_criproxy.hooks.asking import KEPT_CHANNELS, HookClient
from koord_criproxy.sockets import open_channel
from koordcore.runtime_api.cri import cri_messages
from koordcore.runtime_api.hooks import messages_of_call
from support.criproxy import RUNTIME, World, answer_as_runtime, proxied, running_world
from support.running_service import running_service
from support.until import DEADLINE_SECONDS, until


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with running_world(tmp_path) as found:
        yield found


async def test_hooks_change_sandbox_and_container(world: World) -> None:
    world.register("Fail", "PreRunPodSandbox", "PreCreateContainer")
    sandbox, container = (messages_of_call(f"Pre{name}Hook")[1] for name in ("RunPodSandbox", "CreateContainer"))
    world.responses["PreRunPodSandboxHook"] = sandbox(labels={"added": "1"}, cgroup_parent="/offline")
    world.responses["PreCreateContainerHook"] = container(
        container_resources={"cpu_shares": 512, "cpuset_cpus": "0-1"}, container_envs={"A": "1", "GPU": "0"}
    )
    async with proxied(world):
        sent = await world.run_sandbox(labels={"a": "b"})
        assert dict(sent.config.labels) == {"a": "b", "added": "1"}
        assert sent.config.linux.cgroup_parent == "/offline"
        created = await world.create(envs=[{"key": "Z", "value": b"\xff"}, {"key": "A", "value": b"0"}])
        assert created.config.linux.resources.cpu_shares == 512
        assert created.config.linux.resources.cpuset_cpus == "0-1"
        assert [(env.key, env.value) for env in created.config.envs] == [("Z", b"\xff"), ("A", b"1"), ("GPU", b"0")]
        asked = messages_of_call("PreCreateContainerHook")[0].FromString(
            world.hooks.called("PreCreateContainerHook")[0]
        )
        assert (dict(asked.pod_labels), asked.pod_cgroup_parent) == ({"a": "b", "added": "1"}, "/offline")
        assert dict(asked.container_envs) == {"A": "0"}


async def test_fields_that_the_proxy_does_not_know_survive_a_change(world: World) -> None:
    world.register("Fail", "PreRunPodSandbox")
    world.responses["PreRunPodSandboxHook"] = messages_of_call("PreRunPodSandboxHook")[1](labels={"x": "y"})
    async with proxied(world):
        unknown = b"\xfa\x07\x05hello"  # field 127, a text
        await world.call("RunPodSandbox", cri_messages()["RunPodSandboxRequest"]().SerializeToString() + unknown)
        assert unknown in world.runtime.called("RunPodSandbox")[0]


@pytest.mark.parametrize("trouble", ["refused", "hangs", "down"])
async def test_required_hook_that_fails_rejects_the_call(
    world: World, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.register("Fail", "PreRunPodSandbox", "PostStopPodSandbox")
    if trouble == "hangs":
        monkeypatch.setattr(asking, "HOOK_SECONDS", 0.1)
    world.responses["PreRunPodSandboxHook"] = 3600.0 if trouble == "hangs" else "refused"
    world.responses["PostStopPodSandboxHook"] = "refused"
    async with proxied(world):
        await world.call("Status", b"")
        if trouble == "down":
            await world.hooks.stop()
        request = cri_messages()["RunPodSandboxRequest"](runtime_handler="runc")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await world.call("RunPodSandbox", request, timeout=DEADLINE_SECONDS)
        assert caught.value.code() is grpc.StatusCode.UNKNOWN
        assert str(caught.value.details()).startswith("hook server err: ")
        assert world.runtime.called("RunPodSandbox") == []
        await world.call("StopPodSandbox", cri_messages()["StopPodSandboxRequest"](pod_sandbox_id="s1"))
        if trouble == "down":
            await world.hooks.start()


async def test_optional_hook_that_is_down_changes_nothing_until_it_is_back(world: World) -> None:
    world.register("Ignore", "PreRunPodSandbox")
    world.responses["PreRunPodSandboxHook"] = messages_of_call("PreRunPodSandboxHook")[1](labels={"x": "y"})
    await world.hooks.stop()
    async with proxied(world):
        assert dict((await world.run_sandbox()).config.labels) == {}
        await world.hooks.start()

        async def is_changed() -> bool:
            return dict((await world.run_sandbox()).config.labels) == {"x": "y"}

        await until(is_changed, "the hook server is asked again")


@pytest.mark.parametrize("endpoint", ["", "relative", "a\0b", "/" + "x" * 200, "http://x"])
async def test_hook_server_with_an_unusable_address_is_one_that_is_down(world: World, endpoint: str) -> None:
    world.register("Fail", "PreRunPodSandbox", endpoint=endpoint)
    world.register("Ignore", "PreCreateContainer", endpoint=endpoint, file="b.json")
    async with proxied(world):
        with pytest.raises(grpc.aio.AioRpcError, match="hook server err") as caught:
            await world.run_sandbox()
        assert caught.value.code() is grpc.StatusCode.UNKNOWN
        await world.create()


async def test_paths_of_sockets_may_have_any_character(tmp_path: Path) -> None:
    folder = tmp_path / "50%41 ü?#"
    folder.mkdir()
    async with running_world(folder) as world:
        world.register("Fail", "PreRunPodSandbox")
        async with proxied(world):
            await world.run_sandbox()
        assert len(world.hooks.calls) == 1


async def test_registration_is_read_while_the_proxy_runs(world: World) -> None:
    async with proxied(world):
        await world.run_sandbox()
        assert world.hooks.calls == []
        world.register("Ignore", "PreRunPodSandbox")

        async def is_asked() -> bool:
            await world.run_sandbox()
            return bool(world.hooks.calls)

        await until(is_asked, "the new hook server is asked")
        (world.hooks_dir / "agent.json").write_text("{broken")
        (world.hooks_dir / "other.json").write_text("{}")
        before = len(world.hooks.calls)
        await world.run_sandbox()
        assert len(world.hooks.calls) == before + 1
        (world.hooks_dir / "agent.json").unlink()

        async def is_forgotten() -> bool:
            asked = len(world.hooks.calls)
            await world.run_sandbox()
            return len(world.hooks.calls) == asked

        await until(is_forgotten, "the hook server is forgotten")


async def test_runtime_that_is_down_fails_calls_at_once_and_comes_back(world: World) -> None:
    async with running_service(world.settings, compose) as shell:

        def failed() -> list[str]:
            return [check.name for check in shell.health.liveness() if check.reason]

        await world.call("Status", b"")
        assert failed() == []
        await world.runtime.stop()
        assert failed() == ["runtime"]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await world.call("Status", b"", timeout=DEADLINE_SECONDS, wait_for_ready=False)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        await world.runtime.start()

        async def answers() -> bool:
            try:
                await world.call("Status", b"", timeout=DEADLINE_SECONDS)
            except grpc.aio.AioRpcError:
                return False
            return True

        await until(answers, "the runtime is reached again")
        assert failed() == []
        world.settings.koord_runtimeproxy_endpoint.unlink()
        assert failed() == ["socket"]


async def test_hundred_calls_at_once_do_not_wait_for_each_other(world: World) -> None:
    world.register("Fail", "PreRunPodSandbox")
    started = asyncio.Event()
    waiting = 0

    async def all_wait(method: str, body: bytes, context: Any) -> bytes | None:
        nonlocal waiting
        if method.endswith("/RunPodSandbox"):
            waiting += 1
            if waiting == 100:
                started.set()
            await started.wait()
        return await answer_as_runtime(method, body, context)

    world.runtime.answer = all_wait
    async with proxied(world):
        request = cri_messages()["RunPodSandboxRequest"]()
        await asyncio.gather(*(world.call("RunPodSandbox", request) for _ in range(100)))
        assert len(world.hooks.called("PreRunPodSandboxHook")) == 100


@pytest.mark.parametrize("is_ready", [True, False])
async def test_a_sandbox_whose_client_left_before_the_answer_is_found(world: World, is_ready: bool) -> None:
    world.register("Fail", "PreCreateContainer")
    messages, asked = cri_messages(), asyncio.Event()

    async def answer(method: str, body: bytes, context: Any) -> bytes | None:
        match method.removeprefix(RUNTIME):
            case "RunPodSandbox":
                asked.set()
                await asyncio.Event().wait()
                return None
            case "PodSandboxStatus":
                meta = {"name": "web", "uid": "u", "namespace": "d"}
                status = {"metadata": meta, "state": 0 if is_ready else 1, "labels": {"app": "web"}}
                info = {"info": '{"config": {"linux": {"cgroup_parent": "/kubepods/podu"}}}'}
                return messages["PodSandboxStatusResponse"](status=status, info=info).SerializeToString()
            case _:
                return await answer_as_runtime(method, body, context)

    world.runtime.answer = answer
    async with proxied(world):
        leaving = open_channel(str(world.settings.koord_runtimeproxy_endpoint))
        unary: Any = leaving.unary_unary
        call = unary(f"{RUNTIME}RunPodSandbox")(messages["RunPodSandboxRequest"]().SerializeToString())
        await asked.wait()
        await leaving.close()
        assert call.cancelled()
        await world.create()
        hooked = [
            messages_of_call("PreCreateContainerHook")[0].FromString(body)
            for body in world.hooks.called("PreCreateContainerHook")
        ]
        found = [(each.pod_meta.name, dict(each.pod_labels), each.pod_cgroup_parent) for each in hooked]
        assert found == ([("web", {"app": "web"}, "/kubepods/podu")] if is_ready else [])
        await world.create()
        assert len(world.runtime.called("PodSandboxStatus")) == (1 if is_ready else 2), "it is remembered"


async def test_a_channel_too_many_waits_for_no_call_of_another_server(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "HOOK_SECONDS", 3600.0)
    world.responses["PostStopPodSandboxHook"] = 3600.0
    request = messages_of_call("PreRunPodSandboxHook")[0]()
    hooks = HookClient()
    endpoints = [world.folder / f"{number}.sock" for number in range(KEPT_CHANNELS + 1)]
    for endpoint in endpoints:
        endpoint.symlink_to(world.hooks.socket)
    slow = asyncio.create_task(hooks.ask(str(endpoints[0]), "PostStopPodSandboxHook", request))
    await until(lambda: world.hooks.calls)
    async with asyncio.timeout(DEADLINE_SECONDS):
        for endpoint in endpoints[1:]:
            await hooks.ask(str(endpoint), "PreRunPodSandboxHook", request)
    assert not slow.done()
    slow.cancel()
    await asyncio.wait((slow,))
    await hooks.close()


async def test_metrics_tell_how_long_hooks_took_and_which_failed(world: World) -> None:
    world.register("Ignore", "PreRunPodSandbox", "PreCreateContainer")
    world.responses["PreCreateContainerHook"] = "refused"
    async with running_service(world.settings, compose) as shell:
        await world.run_sandbox()
        await world.create()

        def sample(name: str, **labels: str) -> float | None:
            return shell.metrics.registry.get_sample_value(f"koord_runtimeproxy_{name}", labels)

        count = "hook_duration_seconds_count"
        assert sample(count, hook="PreRunPodSandbox", result="succeeded") == 1
        assert sample(count, hook="PreCreateContainer", result="failed") == 1
        assert sample("hook_errors_total", hook="PreCreateContainer", policy="Ignore") == 1
        assert sample("store_records", kind="container") == 1


async def test_socket_belongs_to_its_owner_and_is_removed_at_the_end(world: World) -> None:
    socket = world.settings.koord_runtimeproxy_endpoint
    async with proxied(world):
        assert socket.stat().st_mode & 0o777 == 0o660
    assert not socket.exists()
