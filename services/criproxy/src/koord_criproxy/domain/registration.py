"""Hook servers: files in which they register, and which of them is asked.

Source: runtime spec, 5.1, 5.5.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_criproxy.domain.calls import HOOKS, Stage

SUFFIX: Final = "json"
FAIL: Final = "Fail"
IGNORE: Final = "Ignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookServer:
    """A hook server that has registered in the folder: it may change pods and containers before the runtime gets them.

    Attributes:
        file: Name of the file that registers it.
        endpoint: Path of its unix socket.
        policy: Failure policy as the file has it; "" if it has none.
        hooks: Names of the hooks that it serves, in the order of the file.
    """

    file: str
    endpoint: str
    policy: str = ""
    hooks: tuple[str, ...] = ()

    @property
    def is_required(self) -> bool:
        """Whether a failed hook of this server makes the CRI call fail.

        Only the policy `Fail`, in exactly these letters, does so.
        """
        return self.policy == FAIL


class HookCall(NamedTuple):
    """The hook server that has to be called, and the name of its gRPC call, such as `PreRunPodSandboxHook`."""

    server: HookServer
    rpc: str


@dataclass(frozen=True, slots=True)
class SkipLabel:
    """Label of pods that are never sent to hook servers."""

    key: str = "runtimeproxy.koordinator.sh/skip-hookserver"
    value: str = "true"

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether a pod with these labels is skipped. The value must match exactly."""
        return labels.get(self.key) == self.value


def parse_registration(file: str, content: bytes) -> HookServer:
    """Read the file of one hook server. The case of keys does not matter, and unknown keys are ignored.

    Args:
        file: Name of the file.
        content: Its content.

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
    """Return the registered hook servers after the folder was read again.

    Args:
        before: File -> server, as the folder was read before. If the content of a file is invalid now, its server
            stays. If a file is gone, its server is gone, too.
        files: Name -> content of the files in the folder. Files whose names do not end in `json` are ignored.

    Returns:
        File -> server in ascending order of the names, and file -> problem.
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
    """Return the hook server that is asked at this stage of a call: the first one with a hook that belongs to it.

    Args:
        servers: Registered servers in ascending order of their files.
        call: Name of the call, such as `CreateContainer`.
        stage: Before or after the call of the runtime.
    """
    wanted = {hook for hook in HOOKS.get(call, ()) if hook.startswith(stage)}
    found = (HookCall(server, f"{hook}Hook") for server in servers for hook in server.hooks if hook in wanted)
    return next(found, None)


def _text(file: str, fields: Mapping[str, Any], key: str) -> str:
    value: object = fields.get(key) or ""
    if not isinstance(value, str):
        raise InvalidInput("a text", value, f"{file}.{key}")
    return value


def registered(servers: Mapping[str, HookServer]) -> Sequence[HookServer]:
    """Return the hook servers in ascending order of the names of their files."""
    return [servers[file] for file in sorted(servers)]
