"""Devices of all nodes: inventories, their use by pods, and which nodes have room for a pod. For most pods, counting
free devices in the columns decides. Where hints, partitions or the joint rule matter, the exact procedure runs once for
each distinct state of devices, not once for each node.

Source: scheduler-fine-grained spec, 2.3, 2.5, 6.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec
import numpy as np
from koordcore.protocol import keys
from koordcore.protocol.hardware.device_requests import GPU_TYPE
from koordcore.values.allocation import AllocatedDevice

from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows, row_list
from koord_scheduler.domain.plugins.device.allocator import (
    INSUFFICIENT_GPUS,
    NodeDevices,
    Terms,
    allocate,
    is_well_planned_for,
)
from koord_scheduler.domain.plugins.device.columns import NAMES, OnNode, TypeColumns
from koord_scheduler.domain.plugins.device.inventory import Inventories, Inventory, Layouts, partition_table
from koord_scheduler.domain.plugins.device.one_share import Shares
from koord_scheduler.domain.plugins.device.picking import NO_SCORING, NOT_RESERVED, DeviceScoring, Reserved, reserved_of
from koord_scheduler.domain.plugins.device.pod_devices import PodDevices
from koord_scheduler.domain.plugins.device.refusal import Refusal, RefusalCodes, insufficient, unsupported_model
from koord_scheduler.domain.plugins.device.templates import GpuTemplates
from koord_scheduler.domain.plugins.device.usage import DeviceUse

FITS: Final = 0
_MOST_KEPT: Final = 65_536
"""Answers of the exact procedure that are kept, and states of devices that are told apart."""
_NOT_LENT: Final = (-1, NOT_RESERVED)
_TYPES: Final = tuple(NAMES)
NO_DEVICE_OBJECT: Final = Refusal("node(s) missing Device object", is_resolvable=False)
NO_GPUS: Final = Refusal(INSUFFICIENT_GPUS, is_resolvable=True)
ISOLATION_MISSING: Final = "isolation provider not found on the node"


class NodeStates:
    """The devices of all nodes with their free amounts, and the filter and score of DeviceShare over them."""

    def __init__(
        self,
        nodes: NodeColumns,
        inventories: Inventories,
        scoring: DeviceScoring = NO_SCORING,
        unsupported: frozenset[tuple[str, str]] = frozenset(),
        templates: GpuTemplates | None = None,
    ) -> None:
        self._nodes = nodes
        self._inventories = inventories
        self.scoring = scoring
        self.codes_of = RefusalCodes()  # Filter codes and their reasons; 0 means that the node has room
        self.unsupported = unsupported  # (vendor, model) of GPUs that must not be shared
        self._templates = templates or GpuTemplates()
        self._uses: dict[int, DeviceUse] = {}
        self._devices: dict[int, NodeDevices] = {}
        self._labels: dict[int, Mapping[str, str]] = {}
        capacity = nodes.capacity
        # Device type -> free amounts on all nodes.
        self.columns = {type_: TypeColumns(type_, capacity) for type_ in _TYPES}
        self.has_devices: BoolArray = np.zeros(capacity, np.bool_)  # bool (N,): the node has a Device object
        self.has_tree: BoolArray = np.zeros(capacity, np.bool_)  # bool (N,): its GPUs have a topology tree
        self._honors: BoolArray = np.zeros(capacity, np.bool_)
        self._refuses_shares: BoolArray = np.zeros(capacity, np.bool_)
        self._layouts = Layouts()
        self._states: dict[object, int] = {}
        self._next_state = 0  # numbers are not used again, because others may keep them
        self._state_of: dict[int, int] = {}
        self._answers: dict[tuple[PodDevices, frozenset[int] | None, int, bool], int] = {}
        self._given: dict[object, tuple[AllocatedDevice, ...] | Refusal] = {}
        self._shares = Shares(self.columns[GPU_TYPE], scoring)
        self._lent = _NOT_LENT
        inventories.followers.append(self.inventory_changed)

    # --- what is followed --------------------------------------------------------------------------------------------

    def put_node(self, row: int, labels: Mapping[str, str]) -> None:
        self._labels[row] = labels
        self._refresh(row)

    def drop_node(self, row: int) -> None:
        """Forget the node at position `row`. No pod counts on it any more."""
        del self._labels[row]
        self._uses.pop(row, None)
        self._refresh(row)

    def inventory_changed(self, node: str) -> None:
        """Read the devices of a node again, because its Device object changed. No-op if the node is not in the
        columns.
        """
        row = self._nodes.row(node)
        if row is not None and row in self._labels:
            self._refresh(row)
            self._nodes.load.record(row)

    def templates_changed(self) -> None:
        """Evaluate all nodes again, because the templates of shared GPU resources have changed."""
        for row in self._devices:
            self._refresh(row)
        self._nodes.judge_anew()

    def take(self, row: int, uid: str, devices: tuple[AllocatedDevice, ...], reservation: str = "") -> None:
        """Count the devices that a pod holds on the node at position `row`. `reservation`: uid of the Reservation that
        it uses; its own uid if it is a Reservation; empty for none.
        """
        use = self._use(row)
        self._count(row, use, use.rests.came(uid, reservation, devices))

    def give(self, row: int, uid: str, reservation: str = "") -> None:
        """Stop counting the devices of a pod, which `take` counted. No-op if the pod holds none on the node.
        `reservation`: uid of the Reservation that was passed to `take`.
        """
        use = self._uses.get(row)
        if use is not None:
            self._count(row, use, {uid: (), **use.rests.left(uid, reservation)})
            if not use.holders and row not in self._devices:
                del self._uses[row]

    def _count(self, row: int, use: DeviceUse, holdings: Mapping[str, tuple[AllocatedDevice, ...]]) -> None:
        """Let each of these holders count with these devices, in place of its present ones."""
        for uid, devices in holdings.items():
            if uid in use.holders:
                self._moved(row, use, use.give(uid))
            use.take(uid, devices)
            self._moved(row, use, devices)

    @contextmanager
    def lent(self, row: int, uid: str, limits: frozenset[str] | None) -> Generator[None]:
        """Count the unused devices of a Reservation as free inside this context, to try one of its owners. `limits`:
        resources that the owner may take only from the Reservation; None: it ignores Reservations.
        """
        use = self._use(row)
        devices = use.give(uid)
        self._moved(row, use, devices)
        self._lent = _NOT_LENT if limits is None else (row, reserved_of(devices, limits))
        try:
            yield
        finally:
            self._lent = _NOT_LENT
            use.take(uid, devices)
            self._moved(row, use, devices)

    def reserved_on(self, row: int) -> Reserved:
        """Return the devices of the Reservation that is lent on this node now; `NOT_RESERVED` if none is lent."""
        return self._lent[1] if self._lent[0] == row else NOT_RESERVED

    def devices_of(self, row: int) -> NodeDevices | None:
        """Return the devices of the node at position `row` and their use; None if it has no Device object."""
        return self._devices.get(row)

    def _use(self, row: int) -> DeviceUse:
        use = self._uses.get(row)
        if use is None:
            use = self._uses[row] = DeviceUse()
        return use

    def _moved(self, row: int, use: DeviceUse, devices: tuple[AllocatedDevice, ...]) -> None:
        known = self._devices.get(row)
        self._state_of.pop(row, None)
        if known is None:
            return
        for device in devices:
            card = known.inventory.by_minor.get(device.type, {}).get(device.minor)
            column = self.columns.get(device.type)
            if card is not None and column is not None:
                column.update(row, card, use)

    def _refresh(self, row: int) -> None:
        """Bring a row up to date with its Device object and its labels."""
        self._grow()
        labels = self._labels.get(row)
        inventory = self._inventories.by_node.get(self._nodes.names[row]) if labels is not None else None
        self._state_of.pop(row, None)
        self.has_devices[row] = inventory is not None
        if inventory is None or labels is None:
            self._devices.pop(row, None)
            self._layouts.drop(row)
            self.has_tree[row] = self._honors[row] = self._refuses_shares[row] = False
            use, known = DeviceUse(), Inventory(cards={}, by_minor={})
        else:
            use, known = self._use(row), inventory
            templates = self._templates.of_node(labels)
            self._devices[row] = NodeDevices(inventory=inventory, use=use, labels=labels, templates=templates)
            model = (labels.get(keys.GPU_VENDOR, ""), labels.get(keys.GPU_MODEL, ""))
            slices = tuple([(name, tuple(sorted(templates[name].items()))) for name in sorted(templates)])
            self._layouts.put(row, (inventory.layout, model, labels.get(keys.GPU_PARTITION_POLICY, ""), slices))
            self.has_tree[row] = bool(inventory.zones)
            self._honors[row] = partition_table(inventory, labels)[1] or inventory.is_well_planned
            self._refuses_shares[row] = model in self.unsupported
        for type_, column in self.columns.items():
            column.put(row, known.cards.get(type_, ()), use)

    def _grow(self) -> None:
        capacity = self._nodes.capacity
        if len(self.has_devices) < capacity:
            more = np.zeros(capacity - len(self.has_devices), np.bool_)
            self.has_devices = np.concatenate([self.has_devices, more])
            self.has_tree = np.concatenate([self.has_tree, more])
            self._honors = np.concatenate([self._honors, more])
            self._refuses_shares = np.concatenate([self._refuses_shares, more])
            for column in self.columns.values():
                column.grow(capacity, 0)

    # --- which rows have room ----------------------------------------------------------------------------------------

    def codes(self, pod: PodDevices, rows: Rows) -> IntArray:
        """Return a filter code for each node, int64 (K,). 0 passes; `codes_of` has the reason of each other code.
        `rows`: positions of the nodes, shape (K,).
        """
        codes = np.zeros(len(rows), np.int64)
        if pod.error:
            codes[:] = self.codes_of.code(Refusal(pod.error, is_resolvable=False))
            return codes
        open_ = self.has_devices[rows].copy()

        def refuse(which: BoolArray, refusal: Refusal) -> None:
            if which.any():
                codes[which] = self.codes_of.code(refusal)
                open_[which] = False

        if pod.needs_device:
            refuse(~open_, NO_DEVICE_OBJECT)
        gpu = pod.gpu
        if gpu is not None and gpu.is_shared:
            if self.unsupported:
                for place in row_list(np.flatnonzero(open_ & self._refuses_shares[rows])):
                    codes[place] = self.codes_of.code(unsupported_model(self._labels[int(rows[place])]))
                    open_[place] = False
            if pod.isolation_provider:
                column = self._nodes.label(keys.GPU_ISOLATION_PROVIDER)
                provider = pod.isolation_provider
                has = np.array([column.texts[value] == provider for value in column.values[rows].tolist()], np.bool_)
                refuse(open_ & ~has, Refusal(f"{provider} {ISOLATION_MISSING}", is_resolvable=False))
        for type_ in pod.requests:
            refuse(open_ & (self.columns[type_].cards[rows] == 0), insufficient(type_, is_resolvable=False))
        exact = open_.copy()
        if pod.is_simple:
            exact &= self._honors[rows] if gpu is not None and not gpu.is_shared else False
            counted = open_ & ~exact
            for type_, request in pod.requests.items():
                short = counted & (self.columns[type_].fitting(request.per_device, rows) < request.count)
                is_tree = self.has_tree[rows] if self._uses_tree(pod, type_) else np.zeros(len(rows), np.bool_)
                refuse(short & is_tree & open_, NO_GPUS)
                refuse(short & ~is_tree & open_, insufficient(type_))
        for place in row_list(np.flatnonzero(exact)):
            codes[place] = self._exact(pod, None, int(rows[place]))
        return codes

    def code_function(self, pod: PodDevices) -> Callable[[int], int]:
        """Return a function that takes a node's position and returns its filter code, like `codes` without arrays."""
        gpu = pod.gpu
        if pod.error or (gpu is not None and gpu.is_shared and (self.unsupported or pod.isolation_provider)):
            return lambda row: self.code_on(pod, row)
        is_whole, is_simple = gpu is not None and not gpu.is_shared, pod.is_simple
        types = [(self.columns[type_].on_node, insufficient(type_, is_resolvable=False)) for type_ in pod.requests]
        rooms = [
            (
                self.columns[type_].room_function(each.per_device, each.count),
                insufficient(type_),
                self._uses_tree(pod, type_),
            )
            for type_, each in pod.requests.items()
        ]
        single = self._single_amount(pod)

        def code(row: int) -> int:
            if single is not None and single[0][row].most(single[1]) >= single[2]:
                return FITS
            if row not in self._devices:
                return self.codes_of.code(NO_DEVICE_OBJECT) if pod.needs_device else FITS
            for on_node, refusal in types:
                if not on_node[row].cards:
                    return self.codes_of.code(refusal)
            if not is_simple or (is_whole and self._honors[row]):
                return self._exact(pod, None, row)
            for has_room, refusal, is_tree in rooms:
                if not has_room(row):
                    return self.codes_of.code(NO_GPUS if is_tree and self.has_tree[row] else refusal)
            return FITS

        return code

    def _single_amount(self, pod: PodDevices) -> tuple[list[OnNode], int, int] | None:
        """Return which amount of one device decides alone whether a node has room; None if more decides."""
        if not pod.is_simple or len(pod.requests) != 1:
            return None
        (type_,) = pod.requests
        request, column = pod.requests[type_], self.columns[type_]
        found = column.single_amount(request.per_device) if request.count == 1 else None
        is_whole = type_ == GPU_TYPE and not request.is_shared
        return None if found is None or is_whole else (column.on_node, *found)

    def code_on(self, pod: PodDevices, row: int) -> int:
        """Return the filter code of the node at position `row`, as `codes` does for many nodes."""
        return int(self.codes(pod, np.array([row], np.intp))[0])

    def refused_within(self, pod: PodDevices, row: int, zones: frozenset[int] | None) -> str | None:
        """Return why the node cannot give the pod devices on these NUMA nodes; None if it can. `zones`: the NUMA nodes;
        None: any.
        """
        if row not in self._devices:
            return NO_DEVICE_OBJECT.reason if pod.needs_device else None
        code = self._exact(pod, zones, row)
        return self.codes_of.reason(code) if code else None

    def _uses_tree(self, pod: PodDevices, type_: str) -> bool:
        return type_ == GPU_TYPE and not (pod.requests[type_].is_shared and pod.requests[type_].count > 1)

    def _exact(self, pod: PodDevices, zones: frozenset[int] | None, row: int) -> int:
        """Return the code that the exact procedure gives, kept for all nodes in the same state."""
        code = self._kept_code(pod, zones, row)
        is_planned = code != FITS and is_well_planned_for(self._devices[row].inventory, pod)
        if is_planned and self._kept_code(pod, zones, row, only_primary=True) == FITS:
            self._inventories.not_well_planned.add(self._nodes.names[row])
        return code

    def _kept_code(self, pod: PodDevices, zones: frozenset[int] | None, row: int, *, only_primary: bool = False) -> int:
        key = (pod, zones, self.state_of(row), only_primary)
        reserved = self.reserved_on(row)
        types = frozenset(pod.requests).difference(pod.joint.types[1:]) if only_primary and pod.joint else None
        terms = Terms(zones=zones, scoring=self.scoring, reserved=reserved, types=types)
        code = self._answers.get(key) if terms.reserved is NOT_RESERVED else None
        if code is None:
            if len(self._answers) >= _MOST_KEPT:
                self._answers.clear()
            found = allocate(self._devices[row], pod, terms)
            code = self.codes_of.code(found) if isinstance(found, Refusal) else FITS
            if terms.reserved is NOT_RESERVED:
                self._answers[key] = code
        return code

    def allocate(self, pod: PodDevices, row: int, terms: Terms) -> tuple[AllocatedDevice, ...] | Refusal:
        """Return the devices that the function `allocate` chooses on the node, or its refusal. The result is cached for
        all nodes in the same state, unless the free amounts of cards decide (`Shares`). It is not cached if the pod
        uses a Reservation, or if cards have scores: these depend on the node's CPU as well.
        """
        node = self._devices[row]
        is_plain = terms.zones is None and terms.reserved is NOT_RESERVED
        if is_plain and (card := self._shares.card(pod, node.inventory, node.use, row, terms.card_scores)):
            return card
        if terms.card_scores or terms.reserved is not NOT_RESERVED:
            return allocate(node, pod, terms)
        key = (pod, terms.zones, self.state_of(row))
        found = self._given.get(key)
        if found is None:
            if len(self._given) >= _MOST_KEPT:
                self._given.clear()
            found = self._given[key] = allocate(node, pod, terms)
            return found
        if isinstance(found, Refusal):
            return found
        by_minor = node.inventory.by_minor
        return tuple([msgspec.structs.replace(each, id=by_minor[each.type][each.minor].id) for each in found])

    def state_of(self, row: int) -> int:
        """Return a number for the state of a node's devices. Nodes have equal numbers if their devices differ at most
        in their ids, and pods hold equal amounts of them.
        """
        state = self._state_of.get(row)
        if state is None:
            if len(self._states) >= _MOST_KEPT:
                self._states.clear()
                self._state_of.clear()
                self._answers.clear()
                self._given.clear()
            known = self._devices[row]
            key = (self._layouts.of(row), known.use.signature(_TYPES))
            state = self._states.get(key)
            if state is None:
                state = self._states[key] = self._next_state
                self._next_state += 1
            self._state_of[row] = state
        return state
