"""Hook servers: the intercepted calls with their hooks, the files of registration, which server is asked, and facts.

Source: runtime spec, 5.1, 5.2, 5.5, 10.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from koordcore.events.criproxy import HookServerFailed, HookServersChanged, RegisteredHookServer
from koordcore.runtime_api.cri import RUNTIME_SERVICE
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_criproxy.records import PodRecord


class Stage(StrEnum):
    """Before the call reaches the container runtime, or after it. The name of a hook begins with it."""

    PRE = "Pre"
    POST = "Post"


HOOKS: Final[Mapping[str, frozenset[str]]] = {
    "RunPodSandbox": frozenset(("PreRunPodSandbox",)),
    "StopPodSandbox": frozenset(("PostStopPodSandbox",)),
    "CreateContainer": frozenset(("PreCreateContainer",)),
    "StartContainer": frozenset(("PreStartContainer", "PostStartContainer")),
    "UpdateContainerResources": frozenset(("PreUpdateContainerResources",)),
    "StopContainer": frozenset(("PostStopContainer",)),
    "RemoveContainer": frozenset(),
    "RemovePodSandbox": frozenset(),
}
"""Intercepted call -> names of the hooks that belong to it. The last two calls only drop what is remembered."""

_PREFIX: Final = f"/{RUNTIME_SERVICE}/"


def intercepted_call(path: str) -> str | None:
    """`/runtime.v1.RuntimeService/RunPodSandbox` -> `RunPodSandbox`; None if the proxy only forwards it."""
    name = path.removeprefix(_PREFIX)
    return name if name != path and name in HOOKS else None


SUFFIX: Final = "json"
FAIL: Final = "Fail"
IGNORE: Final = "Ignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookServer:
    """It may change pods and containers before the runtime gets them."""

    file: str  # Name of the file that registers it
    endpoint: str  # Path of its unix socket
    policy: str = ""  # Failure policy as the file has it; "" if it has none
    hooks: tuple[str, ...] = ()  # Names of the hooks that it serves, in the order of the file

    @property
    def is_required(self) -> bool:
        """Whether its failed hooks make the CRI call fail: only with the policy `Fail`, in exactly these letters."""
        return self.policy == FAIL


class HookCall(NamedTuple):
    """`rpc` is the name of the gRPC call, such as `PreRunPodSandboxHook`."""

    server: HookServer
    rpc: str


@dataclass(frozen=True, slots=True)
class SkipLabel:
    """Label of pods that are never sent to hook servers."""

    key: str = "runtimeproxy.koordinator.sh/skip-hookserver"
    value: str = "true"

    def matches(self, labels: Mapping[str, str]) -> bool:
        """The value must match exactly."""
        return labels.get(self.key) == self.value


def parse_registration(file: str, content: bytes) -> HookServer:
    """The case of keys does not matter, and unknown keys are ignored.

    Raises:
        InvalidInput: The content is not a JSON object, or a field has the wrong type.
    """
    try:
        document = codec.decode(content, dict[str, Any])
    except codec.DecodeError as error:
        raise InvalidInput("a JSON object", str(error), file) from error
    fields = {key.lower(): value for key, value in document.items()}
    try:
        hooks = codec.convert(fields.get("runtime-hooks") or [], tuple[str, ...])
    except codec.DecodeError as error:
        raise InvalidInput("a list of texts", str(error), f"{file}.runtime-hooks") from error
    return HookServer(
        file=file,
        endpoint=_text(file, fields, "remote-endpoint"),
        policy=_text(file, fields, "failure-policy"),
        hooks=hooks,
    )


def hook_servers(
    before: Mapping[str, HookServer], files: Mapping[str, bytes]
) -> tuple[dict[str, HookServer], dict[str, str]]:
    """The registered hook servers after the folder was read again: file -> server in ascending order, and file ->
    problem.

    `before` has them as the folder was read before. If the content of a file is invalid now, its server stays. If a
    file is gone, its server is gone, too. Files whose names do not end in `json` are ignored.
    """
    servers: dict[str, HookServer] = {}
    problems: dict[str, str] = {}
    for name in sorted(name for name in files if name.endswith(SUFFIX)):
        try:
            servers[name] = parse_registration(name, files[name])
        except InvalidInput as error:
            problems[name] = str(error)
            if name in before:
                servers[name] = before[name]
    return servers, problems


def find_hook(servers: Iterable[HookServer], call: str, stage: Stage) -> HookCall | None:
    """The first server, in ascending order of the files, with a hook that belongs to this stage of the call."""
    wanted = {hook for hook in HOOKS.get(call, ()) if hook.startswith(stage)}
    if not wanted:
        return None
    found = (HookCall(server, f"{hook}Hook") for server in servers for hook in server.hooks if hook in wanted)
    return next(found, None)


def _text(file: str, fields: Mapping[str, Any], key: str) -> str:
    value: object = fields.get(key) or ""
    if not isinstance(value, str):
        raise InvalidInput("a text", value, f"{file}.{key}")
    return value


def registered(servers: Mapping[str, HookServer]) -> Sequence[HookServer]:
    """In ascending order of the names of their files."""
    return [servers[file] for file in sorted(servers)]


class HookFailure(NamedTuple):
    server: HookServer
    rpc: str  # gRPC call, such as `PreCreateContainerHook`
    pod: PodRecord  # The pod that it was asked about
    container: str  # Name of the container; "" for the pod itself
    error: str  # Why it failed


def policy_of(server: HookServer) -> str:
    """The policy in force: `Fail` or `Ignore`."""
    return FAIL if server.is_required else IGNORE


def hook_server_failed(failure: HookFailure) -> HookServerFailed:
    return HookServerFailed(
        uid=failure.pod.uid,
        namespace=failure.pod.namespace,
        pod=failure.pod.name,
        container=failure.container,
        hook=failure.rpc.removesuffix("Hook"),
        server=failure.server.file,
        policy=policy_of(failure.server),
        error=failure.error,
    )


def hook_servers_changed(servers: Iterable[HookServer]) -> HookServersChanged:
    """`servers` in the order in which the proxy looks for a hook."""
    return HookServersChanged(
        servers=[
            RegisteredHookServer(
                file=server.file, endpoint=server.endpoint, policy=policy_of(server), hooks=list(server.hooks)
            )
            for server in servers
        ]
    )
