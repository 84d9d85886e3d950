"""Translation of command lines of Koordinator's agent: older flag names, and flags without effect in this agent.

The log lists which flags were translated, and which have no effect. A flag that neither agent knows is refused.

Source: agent spec, 2.2, 23.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from koordcore.service.flags import FlagSpec, klog_flags, without_effect

from koord_agent.domain.kernel.counters import whole_number

AGENT_MODE: Final = "agent_mode"
"""Environment variable of Koordinator's DaemonSet. With any value but `hostMode`, the agent is in a container."""
HOST_MODE: Final = "hostMode"
CONTAINER_PATHS: Final[Mapping[str, str]] = {
    "cgroup_root": "/host-cgroup",
    "proc_root": "/proc",
    "sys_root": "/host-sys",
    "sys_fs_root": "/host-sys-fs",
    "var_run_root": "/host-var-run",
    "run_root": "/host-run",
    "runtime_hooks_addr": "/host-var-run-koordlet/koordlet.sock",
    "runtime_hooks_config_path": "/host-etc-hookserver/",
    "terway_qos_dir": "/host-var-lib/terway/qos",
}
"""Setting -> path at which the DaemonSet mounts it."""

_NO_TSDB: Final = "samples are kept in a store of its own, not in Prometheus' storage engine"
_NO_API: Final = "the agent speaks to the log, not to the API server"
_NO_KLOG: Final = "see --log-level and --log-format"
IDLE_FLAGS: Final[Sequence[FlagSpec]] = (
    *without_effect("tsdb-enable-prometheus-metric", _NO_TSDB, is_bool=True),
    *without_effect(
        """tsdb-stripe-size tsdb-wal-segment-size tsdb-max-block-chunk-segment-size tsdb-min-block-duration
        tsdb-max-block-duration tsdb-head-chunks-write-buffer-size""",
        _NO_TSDB,
    ),
    *without_effect("metric-gc-interval-seconds", "samples past their retention are dropped in every cycle"),
    *without_effect("metric-expire-seconds", "see --tsdb-retention-duration"),
    *without_effect(
        "enable-pagecache-collector",
        "memory with page cache is always measured: it comes with the same read",
        is_bool=True,
    ),
    *without_effect("kubelet-preferred-address-type", "give --kubelet-address"),
    *without_effect("kube-api-qps kube-api-burst configmap-name configmap-namespace", _NO_API),
    *without_effect("report-interval", "deprecated; the report interval comes with the desired state"),
    *without_effect(
        "runtime-hooks-reconcile-interval", "values are compared when pods or rules change, and every 10 s"
    ),
    *without_effect("resource-force-update-seconds", "each cycle compares values with what their files have"),
    *without_effect("in-container", "no program of the machine is run", is_bool=True),
    *without_effect("pprof-addr", "the profiles are at the address of --http-host and --http-port"),
    *klog_flags(_NO_KLOG),
)
"""Flags of Koordinator's agent that are accepted without effect."""
ADDRESS: Final = "addr"
"""Pattern of the HTTP server's address: `[host]:port`."""
_SUFFIX: Final = "-seconds"


@dataclass(frozen=True, slots=True)
class Accepted:
    """Arguments for the agent's own flags, and one sentence for each change."""

    words: tuple[str, ...]
    notes: tuple[str, ...]


def accepted(words: Sequence[str], known: Collection[str]) -> Accepted:
    """Translate a command line of Koordinator's agent, without the name of the program, to one of this agent.

    A flag that this agent spells with or without the suffix `-seconds` is renamed, and its value converted. Unknown
    flags stay, so that the parser refuses them.
    """
    kept: list[str] = []
    notes: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or name in known:
            kept.append(word)
            continue
        if name == ADDRESS:
            host, _, port = (value if equals else next(rest, "")).rpartition(":")
            kept += [f"--http-host={host.strip('[]') or '0.0.0.0'}", f"--http-port={port}"]  # noqa: S104 - as it was asked for
            notes.append("--addr is called --http-host and --http-port")
            continue
        plain = name.removesuffix(_SUFFIX)
        other = plain if plain != name else name + _SUFFIX
        if other not in known:
            kept.append(word)
            continue
        notes.append(f"--{name} is called --{other}")
        text = value if equals else next(rest, "")
        kept.append(f"--{other}={_in_unit_of(other, text)}")
    return Accepted(tuple(kept), tuple(notes))


def container_paths(environ: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return default settings for an agent in a container: name of an environment variable -> mount path.

    Flags override them. The result is empty if the agent runs directly on the host.
    """
    if environ.get(AGENT_MODE, HOST_MODE) == HOST_MODE:
        return {}
    return {prefix + name.upper(): path for name, path in CONTAINER_PATHS.items()}


def _in_unit_of(name: str, text: str) -> str:
    """The value of a renamed flag in its unit: a number of seconds or a duration."""
    if name.endswith(_SUFFIX):
        return text.removesuffix("s")
    return f"{text}s" if whole_number(text) is not None else text
