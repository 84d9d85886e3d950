"""Annotations of a pod that control the choice of its devices: `device-allocate-hint` and `device-joint-allocate`.

Source: scheduler-fine-grained spec, 2.4; protocol spec, 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from koordcore.protocol import keys, lenient_json
from koordcore.protocol.annotations.text import parse_present
from koordcore.protocol.objects import LabelSelector
from koordcore.protocol.selectors import Selector, compile_selector
from koordcore.values.invalid import InvalidInput

APPLY_FOR_ALL: Final = "ApplyForAll"
REQUESTS_AS_COUNT: Final = "RequestsAsCount"
DEVICE_LEVEL: Final = "DeviceLevel"
PCIE_LEVEL: Final = "PCIeLevel"
SAME_PCIE: Final = "SamePCIe"
SCOPE_LEVELS: Final[Mapping[str, int]] = {"Device": 4, "PCIe": 3, "NUMANode": 2, "Node": 1}
"""Topology scope -> strictness; a larger number is stricter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHint:
    """Rules of a pod for choosing the devices of one type.

    Attributes:
        selector: Only devices whose labels match are chosen; None: no restriction.
        vf_selector: Selects the group from which each chosen device gives one virtual function; None: no virtual
            function.
        allocate_strategy: `ApplyForAll` (all devices of the node), `RequestsAsCount` (the request is a number of
            devices), or empty.
        required_scope: All devices must be in one `Device`, below one `PCIe` switch, or in one `NUMANode` or `Node`;
            empty: no rule.
        exclusive_policy: Unit that no other pod may share: the device (`DeviceLevel`) or its PCIe switch (`PCIeLevel`);
            empty: no rule.
    """

    selector: Selector | None = None
    vf_selector: Selector | None = None
    allocate_strategy: str = ""
    required_scope: str = ""
    exclusive_policy: str = ""

    @property
    def scope_level(self) -> int:
        """Strictness of `required_scope` as a number: a smaller scope has a higher number; 0 without a scope."""
        return SCOPE_LEVELS.get(self.required_scope, 0)


class JointAllocation(NamedTuple):
    """Rule of a pod that devices of several types are chosen together.

    Attributes:
        types: Device types; the first one is chosen first.
        required_scope: `SamePCIe` (all devices below one PCIe switch), or empty: no rule.
    """

    types: tuple[str, ...]
    required_scope: str = ""


class _Hint(msgspec.Struct, rename="camel"):
    selector: LabelSelector | None = None
    vf_selector: LabelSelector | None = None
    allocate_strategy: str = ""
    required_topology_scope: str = ""
    exclusive_policy: str = ""


class _Joint(msgspec.Struct, rename="camel"):
    device_types: list[str] = []
    required_scope: str = ""


def parse_device_hints(annotations: Mapping[str, str]) -> dict[str, DeviceHint]:
    """Return device type -> rules for choosing devices, from a pod's annotation `device-allocate-hint`.

    Empty without the annotation.

    Raises:
        InvalidInput: The JSON or a label selector is invalid.
    """
    return parse_present(annotations, keys.DEVICE_ALLOCATE_HINT, _hints) or {}


def parse_joint_allocation(annotations: Mapping[str, str]) -> JointAllocation | None:
    """Return the rule of a pod for choosing devices of several types together, from `device-joint-allocate`.

    None without the annotation, or if it names no device type.

    Raises:
        InvalidInput: The JSON is invalid.
    """
    return parse_present(annotations, keys.DEVICE_JOINT_ALLOCATE, _joint)


_Hints = dict[str, _Hint | None]


def _hints(text: str) -> dict[str, DeviceHint]:
    found: dict[str, DeviceHint] = {}
    for type_, written in lenient_json.decode(text, _Hints).items():
        if written is not None:
            found[type_] = DeviceHint(
                selector=_compiled(written.selector, f"{type_}.selector"),
                vf_selector=_compiled(written.vf_selector, f"{type_}.vfSelector"),
                allocate_strategy=written.allocate_strategy,
                required_scope=written.required_topology_scope,
                exclusive_policy=written.exclusive_policy,
            )
    return found


def _compiled(selector: LabelSelector | None, path: str) -> Selector | None:
    if selector is None:
        return None
    try:
        return compile_selector(selector)
    except InvalidInput as error:
        raise error.at(path) from error


def _joint(text: str) -> JointAllocation | None:
    written = lenient_json.decode(text, _Joint)
    return JointAllocation(tuple(written.device_types), written.required_scope) if written.device_types else None
