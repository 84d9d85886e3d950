"""Validation rules of the Kubernetes API for fields of pods that typed objects leave out.

They are read from the document as the user wrote it. A part of a wrong type is left to the schema of the kind.

Source: reality spec, 1.7; Kubernetes, ValidatePodSpec.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from koordcore.protocol.manifests.names import Violations
from koordcore.values.invalid import InvalidInput

_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_MOST_SECONDS: Final = (1 << 31) - 1
_PORT_NAME: Final = re.compile(r"(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")
_MOST_OF_A_PORT_NAME: Final = 15


def check_unread(kind: str, document: Mapping[str, Any]) -> Violations:
    """Yield every violation in the fields of a pod, or of the pod template of a workload, that only the document has;
    nothing for other kinds.
    """
    if kind == "Pod":
        yield from _spec(_object(document.get("spec")), "spec")
    elif kind in ("Deployment", "Job"):
        template = _object(_object(document.get("spec")).get("template"))
        yield from _spec(_object(template.get("spec")), "spec.template.spec")


def _spec(spec: Mapping[str, Any], path: str) -> Violations:
    policy, deadline = spec.get("restartPolicy"), spec.get("activeDeadlineSeconds")
    if policy not in (None, "", *_RESTART_POLICIES):
        yield InvalidInput(f"absent or one of {', '.join(_RESTART_POLICIES)}", policy, f"{path}.restartPolicy")
    if isinstance(deadline, int) and not 1 <= deadline <= _MOST_SECONDS:
        yield InvalidInput(f"1..{_MOST_SECONDS}, or absent", deadline, f"{path}.activeDeadlineSeconds")
    names = [volume.get("name") for _, volume in _items(spec, "volumes")]
    volumes = {name for name in names if isinstance(name, str)}
    for field in ("containers", "initContainers"):
        for index, container in _items(spec, field):
            where = f"{path}.{field}[{index}]"
            yield from _port_names(container, f"{where}.ports")
            yield from _mounts(container, volumes, f"{where}.volumeMounts")


def _port_names(container: Mapping[str, Any], path: str) -> Violations:
    names: set[str] = set()
    for index, port in _items(container, "ports"):
        name, where = port.get("name"), f"{path}[{index}].name"
        if not isinstance(name, str) or not name:
            continue
        if len(name) > _MOST_OF_A_PORT_NAME or _PORT_NAME.fullmatch(name) is None:
            rule = f"at most {_MOST_OF_A_PORT_NAME} of a-z, 0-9 and single '-', with at least one letter"
            yield InvalidInput(rule, name, where)
        elif name in names:
            yield InvalidInput("unique among the ports of the container", name, where)
        names.add(name)


def _mounts(container: Mapping[str, Any], volumes: set[str], path: str) -> Violations:
    paths: set[str] = set()
    for index, mount in _items(container, "volumeMounts"):
        name, mount_path, where = mount.get("name"), mount.get("mountPath"), f"{path}[{index}]"
        if not isinstance(name, str) or name not in volumes:
            yield InvalidInput("the name of a volume of the pod", name, f"{where}.name")
        if not isinstance(mount_path, str) or not mount_path:
            yield InvalidInput("the path of the mount", mount_path, f"{where}.mountPath")
            continue
        if mount_path in paths:
            yield InvalidInput("unique among the mounts of the container", mount_path, f"{where}.mountPath")
        paths.add(mount_path)


def _items(holder: Mapping[str, Any], field: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the objects of a list with their indexes."""
    listed = holder.get(field)
    for index, item in enumerate(cast("list[object]", listed) if isinstance(listed, list) else []):
        if isinstance(item, dict):
            yield index, cast("dict[str, Any]", item)


def _object(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
