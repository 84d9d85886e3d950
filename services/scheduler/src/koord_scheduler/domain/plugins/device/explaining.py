"""Sentences about device refusals: the devices that a pod needs, and the devices that a node has free. Their HTTP page.

Source: scheduler-fine-grained spec, 2.4 to 2.7, 2.12
"""

from collections.abc import Iterable, Mapping

from koordcore.protocol.annotations.devices import SAME_PCIE, DeviceHint
from koordcore.protocol.hardware.device_requests import GPU_TYPE, TypeRequest
from koordcore.protocol.resource_names import GPU_MEMORY
from koordcore.protocol.selectors import Selector
from koordcore.values.allocation import AllocatedDevice

from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.framework.lifecycle_hooks import PageAnswer
from koord_scheduler.domain.plugins.device.allocator import JOINT_VIOLATED, NOT_IN_SCOPE, NodeDevices
from koord_scheduler.domain.plugins.device.gpu_tree import free_in_scopes
from koord_scheduler.domain.plugins.device.inventory import Card
from koord_scheduler.domain.plugins.device.node_states import NodeStates
from koord_scheduler.domain.plugins.device.picking import is_fitting
from koord_scheduler.domain.plugins.device.pod_devices import PodDevices

_PLURALS = {"gpu": "GPUs", "rdma": "RDMA devices", "fpga": "FPGAs"}
_SINGULARS = {"gpu": "GPU", "rdma": "RDMA device", "fpga": "FPGA"}


def shortage(node: NodeDevices, pod: PodDevices, reason: str) -> str:
    """Return one line about the devices that the pod needs and the devices that the node has free. Empty if the counts
    of devices do not explain the refusal.
    """
    gpu = pod.gpu
    level = pod.hint(GPU_TYPE).scope_level
    if reason == NOT_IN_SCOPE and gpu is not None:
        scope, free = free_in_scopes(node.inventory.zones, level, lambda minor: _fits(node, GPU_TYPE, minor, gpu))
        return f"needs {_counted(GPU_TYPE, gpu)} {scope} {_list(free)} free"
    if reason == JOINT_VIOLATED and pod.joint is not None:
        return _switches(node, pod, pod.joint.types)
    short = [
        _short(node, type_, request) or _short_of_hint(node, type_, request, pod.hint(type_))
        for type_, request in pod.requests.items()
    ]
    return "; ".join(each for each in short if each)


def shortages(nodes: Iterable[tuple[str, NodeDevices | None]], pod: PodDevices, reason: str) -> list[str]:
    """Return one line per node: its name and the text of `shortage`. Nodes without such a text are left out. `nodes`:
    (name, devices) of each node; None: it has no Device object.
    """
    found = [(name, shortage(node, pod, reason)) for name, node in nodes if node is not None]
    return [f"{name}: {text}" for name, text in found if text]


def needed_devices(pod: PodDevices) -> str:
    """Return what the pod needs of each type, such as `2 GPUs, 1 RDMA device`."""
    return ", ".join(_counted(type_, request) for type_, request in pod.requests.items())


def _short(node: NodeDevices, type_: str, request: TypeRequest) -> str:
    cards = node.inventory.cards.get(type_, ())
    healthy = [card for card in cards if card.is_healthy]
    fitting = sum(_fits(node, type_, card.minor, request) for card in healthy)
    if fitting >= request.count:
        return ""
    unhealthy = f", {len(cards) - len(healthy)} unhealthy" if len(healthy) < len(cards) else ""
    what = "have room for it" if request.is_shared else "are free"
    return f"needs {_counted(type_, request)}: {fitting} of {len(cards)} {what}{unhealthy}"


def _short_of_hint(node: NodeDevices, type_: str, request: TypeRequest, hint: DeviceHint) -> str:
    """Return what is short of the devices that match the selectors of the pod's hint; "" if that is enough."""
    if hint.selector is None and hint.vf_selector is None:
        return ""
    cards = node.inventory.cards.get(type_, ())
    matching = [card for card in cards if hint.selector is None or hint.selector.matches(card.labels)]
    fitting = [card for card in matching if _fits(node, type_, card.minor, request)]
    plural, wanted = _PLURALS.get(type_, type_), _counted(type_, request)
    if len(fitting) < request.count:
        return (
            f"needs {wanted} with the labels of the selector: {len(fitting)} of {len(matching)} such {plural} are free"
        )
    if hint.vf_selector is None:
        return ""
    free = {card.minor: _free_functions(node, card, hint.vf_selector) for card in fitting}
    if sum(count > 0 for count in free.values()) >= request.count:
        return ""
    counts = ", ".join(str(free[minor]) for minor in sorted(free))
    return f"needs {wanted} with a virtual function of the vfSelector: {plural} have {counts} such functions free"


def _free_functions(node: NodeDevices, card: Card, selector: Selector) -> int:
    held = node.use.held_functions(card)
    groups = [group for group in card.groups if selector.matches(group.labels)]
    return sum(each.bus_id not in held for group in groups for each in group.functions)


def _switches(node: NodeDevices, pod: PodDevices, types: tuple[str, ...]) -> str:
    """Return how many devices of each type are free by PCIe switch."""
    assert pod.joint is not None, "the pod has a joint rule"
    pcies = sorted({card.pcie for type_ in types for card in node.inventory.cards.get(type_, ()) if card.has_topology})
    parts: list[str] = []
    for type_ in types:
        request = pod.requests[type_]
        free = {
            pcie: sum(
                _fits(node, type_, card.minor, request)
                for card in node.inventory.cards.get(type_, ())
                if card.pcie == pcie
            )
            for pcie in pcies
        }
        parts.append(f"{_list(free)} {_PLURALS.get(type_, type_)}")
    names = " and ".join(_PLURALS.get(type_, type_) for type_ in types)
    scope = "under the same PCIe switches" if pod.joint.required_scope == SAME_PCIE else "together"
    return f"needs {names} {scope}: switches have {' and '.join(parts)} free"


def _fits(node: NodeDevices, type_: str, minor: int, request: TypeRequest) -> bool:
    card = node.inventory.by_minor[type_][minor]
    return card.is_healthy and is_fitting(card, node.use.free(card), request.per_device)


def _counted(type_: str, request: TypeRequest) -> str:
    noun = (_SINGULARS if request.count == 1 else _PLURALS).get(type_, type_)
    if not request.is_shared:
        return f"{request.count} {noun}"
    parts = ", ".join(f"{name.rpartition('/')[2]} {_amount(name, each)}" for name, each in request.per_device.items())
    return f"{request.count} {noun} with {parts} left"


def _amount(name: str, amount: int) -> str:
    if name != GPU_MEMORY:
        return str(amount)
    gibibytes = amount / (1 << 30)
    return f"{gibibytes:g}Gi"


def _list(free: Mapping[str, int]) -> str:
    return ", ".join(str(free[name]) for name in sorted(free))


def describe_devices(node: NodeDevices) -> dict[str, object]:
    """Return the debug page of a node's devices as JSON values: sums by type, each device, and what each pod holds."""
    inventory, use = node.inventory, node.use
    sums: dict[str, dict[str, dict[str, int]]] = {"total": {}, "free": {}, "used": {}}
    for type_, cards in inventory.cards.items():
        sums["total"][type_] = _sum([card.total for card in cards])
        sums["free"][type_] = _sum([use.free(card) for card in cards])
        sums["used"][type_] = _sum([use.used(card) for card in cards])
    pods = {uid: [_held(device) for device in devices] for uid, devices in sorted(use.holders.items())}
    devices = {type_: [_card(card, node) for card in cards] for type_, cards in inventory.cards.items()}
    return {**sums, "devices": devices, "pods": pods}


def _card(card: Card, node: NodeDevices) -> dict[str, object]:
    functions = [each for group in card.groups for each in group.functions]
    return {
        "minor": card.minor,
        "id": card.id,
        "healthy": card.is_healthy,
        "topology": {"nodeID": card.numa, "pcieID": card.pcie} if card.has_topology else None,
        "total": dict(card.total),
        "used": dict(node.use.used(card)),
        "free": node.use.free(card),
        "virtualFunctions": {"total": len(functions), "used": sorted(node.use.held_functions(card))},
    }


def _held(device: AllocatedDevice) -> dict[str, object]:
    return {
        "type": device.type,
        "minor": device.minor,
        "resources": dict(device.amounts),
        "virtualFunctions": [each.bus_id for each in device.virtual_functions],
    }


def _sum(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in amounts:
        for name, amount in each.items():
            found[name] = found.get(name, 0) + amount
    return found


def device_pages(nodes: NodeColumns, states: NodeStates) -> Mapping[str, PageAnswer]:
    """Return the HTTP pages about devices: path below `/apis/v1/plugins/DeviceShare/` -> function that answers. One
    page has all nodes with devices, the other one node: {} if it is unknown or has no devices.
    """

    def devices_of(name: str) -> NodeDevices | None:
        row = nodes.row(name)
        return None if row is None else states.devices_of(row)

    def summaries(_: Mapping[str, str]) -> object:
        found = {name: devices_of(name) for name in sorted(nodes.node_names())}
        return {name: describe_devices(node) for name, node in found.items() if node is not None}

    def summary(asked: Mapping[str, str]) -> object:
        node = devices_of(asked["name"])
        return {} if node is None else describe_devices(node)

    return {"nodeDeviceSummaries": summaries, "nodeDeviceSummaries/{name}": summary}
