"""Translate between the Docker API and the terms of CRI: routes, names, labels, cgroup parents and resources.

Source: runtime spec, 6.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from koordcore.values import codec

from koord_criproxy.records import ContainerRecord, PodRecord, Resources, readable_envs, with_hook_envs, with_update

TYPE_LABEL: Final = "io.kubernetes.docker.type"
SANDBOX_TYPE: Final = "podsandbox"
SANDBOX_ID_LABEL: Final = "io.kubernetes.sandbox.id"
ANNOTATION_PREFIX: Final = "annotation."
"""Prefix of labels that are annotations of a pod or a container."""
SYSTEMD: Final = "systemd"
"""Cgroup driver under which Docker has only the last slice of a cgroup parent."""
UPDATE_FIELDS: Final[Mapping[str, str]] = {
    "CpuPeriod": "cpu_period",
    "CpuQuota": "cpu_quota",
    "CpuShares": "cpu_shares",
    "Memory": "memory_limit_in_bytes",
    "CpusetCpus": "cpuset_cpus",
    "CpusetMems": "cpuset_mems",
    "MemorySwap": "memory_swap_limit_in_bytes",
}
"""Field of Docker's update configuration -> field of `Resources`."""
HOST_CONFIG_FIELDS: Final[Mapping[str, str]] = {**UPDATE_FIELDS, "OomScoreAdj": "oom_score_adj"}
"""Field of Docker's host configuration -> field of `Resources`."""

_VERSION: Final = r"^(?:/v\d+\.\d+)?"
_CREATE: Final = re.compile(_VERSION + r"/containers/create$", re.ASCII)
_ACTION: Final = re.compile(_VERSION + r"/containers/(?P<id>\w+)/(?P<action>start|stop|update)$", re.ASCII)
_ONE: Final = re.compile(_VERSION + r"/containers/(?P<id>\w+)$", re.ASCII)
_SLICE: Final = ".slice"
_NAME_PARTS: Final = (6, 7)
"""Parts of a container name of Kubernetes, without and with dockershim's random suffix."""


class Handler(StrEnum):
    """What becomes of a request. A remove only drops what the proxy remembers; no hook server is asked."""

    CREATE = "create"
    START = "start"
    STOP = "stop"
    UPDATE = "update"
    REMOVE = "remove"
    PASS_THROUGH = "passthrough"  # noqa: S105 - not a password


class Route(NamedTuple):
    """`container_id` is None if the handler needs no id."""

    handler: Handler
    container_id: str | None


def route(path: str, method: str = "POST") -> Route:
    """`path` may have the prefix of an API version and a query.

    A request about a container whose name has other characters than letters, digits and `_` is passed through.
    """
    path = path.partition("?")[0]
    if method == "POST" and _CREATE.match(path):
        return Route(Handler.CREATE, None)
    action = _ACTION.match(path) if method == "POST" else None
    if action is not None:
        return Route(Handler(action["action"]), action["id"])
    one = _ONE.match(path) if method == "DELETE" else None
    if one is not None:
        return Route(Handler.REMOVE, one["id"])
    return Route(Handler.PASS_THROUGH, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesName:
    container: str
    pod: str
    namespace: str
    uid: str
    attempt: int  # Number of containers of this name that the pod had before this one


def parse_name(name: str) -> KubernetesName | None:
    """The parts of `k8s_<container>_<pod>_<namespace>_<uid>_<attempt>`; None for any other name.

    dockershim may append `_<random>`. The slash before the names that Docker lists is ignored.
    """
    parts = name.removeprefix("/").split("_")
    if len(parts) not in _NAME_PARTS or parts[0] != "k8s" or not re.fullmatch(r"\d+", parts[5], re.ASCII):
        return None
    return KubernetesName(container=parts[1], pod=parts[2], namespace=parts[3], uid=parts[4], attempt=int(parts[5]))


def is_sandbox(labels: Mapping[str, str]) -> bool:
    return labels.get(TYPE_LABEL) == SANDBOX_TYPE


def split_labels(found: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The labels, and the annotations without their prefix, that Docker labels contain."""
    labels = {key: value for key, value in found.items() if not key.startswith(ANNOTATION_PREFIX)}
    annotations = {key.removeprefix(ANNOTATION_PREFIX): found[key] for key in found if key not in labels}
    return labels, annotations


def join_labels(labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, str]:
    """Annotations get the prefix `annotation.`."""
    return {**labels, **{ANNOTATION_PREFIX + key: value for key, value in annotations.items()}}


def split_envs(envs: Iterable[str]) -> list[tuple[str, bytes]]:
    """Entries without `=` are left out."""
    pairs = (each.partition("=") for each in envs)
    return [(key, value.encode()) for key, equals, value in pairs if equals]


def with_hook_env_lines(envs: Iterable[str], response: Mapping[str, str]) -> list[str]:
    """The environment `K=V` after the answer of a hook server, which replaces it.

    Entries without `=` were not shown to the server. They stay, at the end.
    """
    envs = list(envs)
    changed = with_hook_envs(split_envs(envs), response)
    return [f"{key}={value.decode()}" for key, value in changed] + [each for each in envs if "=" not in each]


def cgroup_to_cri(driver: str, parent: str) -> str:
    """Under systemd, each prefix of the slice's name up to a dash is a slice around it:

    kubepods-burstable-podX.slice -> /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podX.slice
    """
    if driver != SYSTEMD or "/" in parent or not parent.endswith(_SLICE):
        return parent
    parts = parent.removesuffix(_SLICE).split("-")
    return "".join(f"/{'-'.join(parts[:count])}{_SLICE}" for count in range(1, len(parts) + 1))


def cgroup_to_docker(driver: str, path: str) -> str:
    """Under systemd, Docker has only the last slice."""
    return path.rstrip("/").rpartition("/")[2] if driver == SYSTEMD else path


def resources_of_config(config: Mapping[str, Any]) -> Resources:
    """The resources in a host configuration or an update configuration.

    Raises:
        DecodeError: A field has the wrong type.
    """
    found = {name: config.get(key) for key, name in HOST_CONFIG_FIELDS.items()}
    return codec.convert({name: value for name, value in found.items() if value is not None}, Resources)


def with_resources(config: Mapping[str, Any], resources: Resources, fields: Mapping[str, str]) -> dict[str, Any]:
    """A configuration after the answer of a hook server has overwritten all its resources.

    Resources that the answer does not set overwrite, too: the field becomes 0 or "". Other fields stay. `fields` are
    `HOST_CONFIG_FIELDS` or `UPDATE_FIELDS`.
    """
    return {**config, **{key: getattr(resources, name) for key, name in fields.items()}}


def merge_update(cached: Resources | None, config: Mapping[str, Any]) -> Resources:
    """The remembered resources after an update configuration has overridden them. Raises DecodeError as before."""
    return with_update(cached, resources_of_config(config))


def pod_of_labels(name: KubernetesName, found: Mapping[str, str], cgroup_parent: str) -> PodRecord:
    """`found` and `name` are those of the sandbox; `cgroup_parent` has the form of CRI."""
    labels, annotations = split_labels(found)
    return PodRecord(
        name=name.pod,
        uid=name.uid,
        namespace=name.namespace,
        attempt=name.attempt,
        labels=labels,
        annotations=annotations,
        cgroup_parent=cgroup_parent,
        runtime_handler="docker",
    )


def container_of_config(
    name: KubernetesName, pod: PodRecord, config: Mapping[str, Any], driver: str
) -> ContainerRecord:
    """The record of a container, without its id, from Docker's configuration of it.

    Raises:
        DecodeError: A field of the configuration has the wrong type.
    """
    labels = codec.convert(config.get("Labels") or {}, dict[str, str])
    envs = codec.convert(config.get("Env") or [], list[str])
    host = codec.convert(config.get("HostConfig") or {}, dict[str, Any])
    parent = codec.convert(host.get("CgroupParent") or "", str)
    _, annotations = split_labels(labels)
    return ContainerRecord(
        pod=replace(pod, cgroup_parent=cgroup_to_cri(driver, parent)) if parent else pod,
        sandbox_id=labels.get(SANDBOX_ID_LABEL, ""),
        name=name.container,
        attempt=name.attempt,
        annotations=annotations,
        resources=resources_of_config(host),
        envs=readable_envs(split_envs(envs)),
    )
