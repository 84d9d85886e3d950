"""Vectors of the CRI proxy: merging, dispatch, registration files, and whole sessions with a scripted runtime."""

from __future__ import annotations

import asyncio
from typing import cast

from conformance.registry import Json, adapter
from koord_criproxy.cri.calls import Interceptor
from koord_criproxy.cycle import Answer
from koord_criproxy.hooks.asking import Dispatcher, HookFailed, HookRejected
from koord_criproxy.hooks.messages import Message, resources_of, write_resources
from koord_criproxy.hooks.servers import (
    FAIL,
    HOOKS,
    IGNORE,
    HookServer,
    SkipLabel,
    Stage,
    find_hook,
    hook_server_failed,
    hook_servers,
)
from koord_criproxy.records import ContainerRecord, PodRecord, Resources, Store, with_hook_response, with_update
from koordcore.runtime_api.cri import cri_messages
from koordcore.runtime_api.hooks import messages_of_call
from koordcore.values import codec

Given = dict[str, Json]


@adapter("runtime.hook_config")
def hook_config(given: Given) -> Given:
    files: list[Given] = given["files"]
    contents = {each["name"]: str(each["content"]).encode() for each in files if not each["dir"]}
    servers, _ = hook_servers({}, contents)
    return {
        "hook_servers": [
            {
                "file": server.file,
                "remote_endpoint": server.endpoint,
                "failure_policy": server.policy,
                "effective_policy": FAIL if server.is_required else IGNORE,
                "runtime_hooks": list(server.hooks),
            }
            for server in servers.values()
        ]
    }


@adapter("runtime.skip_pod")
def skip_pod(given: Given) -> Given:
    default = SkipLabel()
    label = SkipLabel(given.get("key", default.key), given.get("val", default.value))
    return {"skip": label.matches(given["labels"])}


@adapter("runtime.hook_dispatch")
def hook_dispatch(given: Given) -> Given:
    stage = Stage.PRE if given["stage"] == "PreHook" else Stage.POST
    found = find_hook([_server(each) for each in given["hook_servers"]], given["request_path"], stage)
    if found is None:
        return {"called": [], "policy": "", "outcome": "forward", "merge_response": False}
    is_ok = given["behaviour"].get(found.server.endpoint, "ok") == "ok"
    rejects = not is_ok and found.server.is_required and stage is Stage.PRE
    return {
        "called": [{"endpoint": found.server.endpoint, "rpc": found.rpc}],
        "policy": found.server.policy,
        "outcome": "reject" if rejects else "forward",
        "merge_response": is_ok and stage is Stage.PRE,
    }


@adapter("runtime.resource_merge", exact_text=("cpuset_cpus", "cpuset_mems"))
def resource_merge(given: Given) -> Given:
    match given["op"]:
        case "hook":
            return {"resources": _shown(with_hook_response(_resources(given["base"]), _optional(given["response"])))}
        case "update_request":
            return {"resources": _shown(with_update(_optional(given["cached"]), _resources(given["request"])))}
        case _:
            return _whole_request(given)


def _whole_request(given: Given) -> Given:
    """Run one call through the interceptor; its only hook server answers with the response of the case."""
    call = {
        "run_pod_sandbox": "RunPodSandbox",
        "create_container": "CreateContainer",
        "update_container": "UpdateContainerResources",
    }[given["op"]]
    store = Store()
    store.pods["s"] = PodRecord()
    if "cached" in given:
        cached: Given = given["cached"]
        store.containers["c"] = ContainerRecord(
            pod=store.pods["s"],
            sandbox_id="s",
            id="c",
            annotations=cached.get("annotations", {}),
            resources=_optional(cached.get("resources")),
        )
    event = {"call": call, "request": {"pod_sandbox_id": "s", "container_id": "c", **given["request"]}, "backend": {}}
    rpc = f"Pre{call}Hook"
    session = _Session(store, {"failure_policy": FAIL, "runtime_hooks": [f"Pre{call}"]})
    result = asyncio.run(session.play({**event, "hooks": {rpc: {"response": given["response"]}}}))
    request: Given = result["forwarded_request"]
    for key in ("pod_sandbox_id", "container_id", "name"):
        request.pop(key, None)
    found: Given = {"request": request}
    if call == "UpdateContainerResources":
        found["hook_request_resources"] = _shown(resources_of(session.asked[0].container_resources))
    return found


@adapter("runtime.proxy_session", exact_text=("cpuset_cpus", "cpuset_mems"))
def proxy_session(given: Given) -> Given:
    store = Store()
    failover: Given = given.get("failover") or {}
    for pod in failover.get("pods", ()):
        store.pods[pod["id"]] = PodRecord(
            labels=pod.get("labels") or {},
            annotations=pod.get("annotations") or {},
            cgroup_parent=pod.get("cgroup_parent", ""),
        )
    for each in failover.get("containers", ()):
        if each["pod_sandbox_id"] in store.pods:
            store.containers[each["id"]] = ContainerRecord(
                pod=store.pods[each["pod_sandbox_id"]],
                sandbox_id=each["pod_sandbox_id"],
                name=each["name"],
                id=each["id"],
                annotations=each.get("annotations") or {},
                resources=_optional(each.get("resources")),
            )
    default = SkipLabel()
    skip = SkipLabel(given.get("skip_key", default.key), given.get("skip_val", default.value))
    session = _Session(store, given["registration"], skip)

    async def play() -> list[Given]:
        return [await session.play(event) for event in given["events"]]

    results = asyncio.run(play())
    return {"results": results, "store": {"pods": sorted(store.pods), "containers": sorted(store.containers)}}


class _Session:
    """The interceptor between scripted hook servers and a scripted runtime."""

    def __init__(self, store: Store, registration: Given, skip: SkipLabel | None = None) -> None:
        server = _server({"remote_endpoint": "e", **registration})
        self.asked: list[Message] = []
        self._calls: list[str] = []
        self._hooks: dict[str, Given] = {}
        dispatcher = Dispatcher(
            lambda: [server], self, skip=skip or SkipLabel(), observe=_ignore, failed=hook_server_failed
        )
        self._interceptor = Interceptor(store, dispatcher, _no_sandbox)

    async def ask(self, endpoint: str, rpc: str, request: Message) -> Message:
        self._calls.append(rpc)
        self.asked.append(request)
        script = self._hooks.get(rpc, {})
        if script.get("error"):
            raise HookFailed("scripted")
        response = messages_of_call(rpc)[1]()
        for key, value in cast("Given", script.get("response") or {}).items():
            field = getattr(response, key, None)
            if isinstance(value, str):
                setattr(response, key, value)
            elif "resources" in key:
                getattr(response, key).SetInParent()
                write_resources(_resources(value), field)
            else:
                cast("dict[str, str]", field).update(value)
        return response

    async def play(self, event: Given) -> Given:
        call: str = event["call"]
        backend: Given = event.get("backend") or {}
        is_ok: bool = backend.get("ok", True)
        self._calls, self._hooks = [], event.get("hooks") or {}
        forwarded: list[bytes] = []

        async def runtime(body: bytes) -> Answer:
            forwarded.append(body)
            answer = cri_messages().get(f"{call}Response")
            ids = {key: backend[key] for key in ("pod_sandbox_id", "container_id") if key in backend}
            return Answer(body=answer(**ids).SerializeToString() if answer and ids else b"", is_ok=is_ok)

        if call not in HOOKS:
            return {"hook_calls": [], "forwarded": True, "client_result": "ok" if is_ok else "backend_error"}
        try:
            await self._interceptor.call(call, _request(call, event["request"]), runtime)
        except HookRejected:
            return {"hook_calls": self._calls, "forwarded": False, "client_result": "hook_error"}
        result: Given = {
            "hook_calls": self._calls,
            "forwarded": True,
            "client_result": "ok" if is_ok else "backend_error",
        }
        shown = _shown_request(call, forwarded[0])
        return result if shown is None else {**result, "forwarded_request": shown}


async def _no_sandbox(_: str) -> PodRecord | None:
    """The scripted runtime tells of no sandbox that the store lacks."""
    return None


def _ignore(_rpc: str, _policy: str, _error: str, _seconds: float) -> None:
    """Hook calls are not counted."""


def _server(each: Given) -> HookServer:
    return HookServer(
        file="f.json",
        endpoint=each["remote_endpoint"],
        policy=each.get("failure_policy", ""),
        hooks=tuple(each["runtime_hooks"]),
    )


def _request(call: str, given: Given) -> bytes:
    request = cri_messages()[f"{call}Request"]()
    match call:
        case "RunPodSandbox":
            request.config.labels.update(given.get("labels") or {})
            request.config.annotations.update(given.get("annotations") or {})
            request.config.linux.cgroup_parent = given.get("cgroup_parent", "")
        case "CreateContainer":
            request.pod_sandbox_id = given["pod_sandbox_id"]
            request.config.metadata.name = given.get("name", "")
            request.config.annotations.update(given.get("annotations") or {})
            request.sandbox_config.linux.cgroup_parent = given.get("cgroup_parent", "")
            request.config.linux.SetInParent()
            write_resources(_resources(given.get("resources") or {}), request.config.linux.resources)
            for env in given.get("envs") or ():
                request.config.envs.add(key=env["key"], value=str(env["value"]).encode())
        case "UpdateContainerResources":
            request.container_id = given["container_id"]
            request.linux.SetInParent()
            write_resources(_resources(given.get("resources") or {}), request.linux)
            request.annotations.update(given.get("annotations") or {})
        case _:
            for key in ("pod_sandbox_id", "container_id"):
                if key in given:
                    setattr(request, key, given[key])
    return request.SerializeToString()


def _shown_request(call: str, body: bytes) -> Given | None:
    request = cri_messages()[f"{call}Request"].FromString(body)
    match call:
        case "RunPodSandbox":
            config = request.config
            return {
                "labels": dict(config.labels),
                "annotations": dict(config.annotations),
                "cgroup_parent": config.linux.cgroup_parent,
            }
        case "CreateContainer":
            return {
                "pod_sandbox_id": request.pod_sandbox_id,
                "name": request.config.metadata.name,
                "annotations": dict(request.config.annotations),
                "cgroup_parent": request.sandbox_config.linux.cgroup_parent,
                "resources": _shown(resources_of(request.config.linux.resources)),
                "envs": [{"key": env.key, "value": env.value.decode()} for env in request.config.envs],
            }
        case "UpdateContainerResources":
            return {
                "container_id": request.container_id,
                "resources": _shown(resources_of(request.linux)),
                "annotations": dict(request.annotations),
            }
        case _:
            return None


def _resources(given: Given) -> Resources:
    limits: list[Given] = given.get("hugepage_limits") or []
    pairs = tuple((each["page_size"], each["limit"]) for each in limits)
    return codec.convert({**given, "hugepage_limits": pairs}, Resources)


def _optional(given: Given | None) -> Resources | None:
    return None if given is None else _resources(given)


def _shown(resources: Resources) -> Given:
    found = cast("Given", codec.to_builtins(resources))
    if "hugepage_limits" in found:
        found["hugepage_limits"] = [{"page_size": size, "limit": limit} for size, limit in resources.hugepage_limits]
    return found
