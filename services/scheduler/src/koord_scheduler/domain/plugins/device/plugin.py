"""DeviceShare as the extension points see it; the rules are beside it.

Source: scheduler-fine-grained spec, 2.
"""

from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import numpy as np
from koordcore.events.envelope import Event, StoredEvent
from koordcore.protocol import keys
from koordcore.protocol.hardware.device_requests import DEVICE_NAMES
from koordcore.protocol.hardware.vendor_devices import vendor_annotations
from koordcore.protocol.objects import Node, Pod
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.resource_names import CPU
from koordcore.values.allocation import NOTHING, AllocatedDevice, Allocation
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import at_most_max

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows, row_list
from koord_scheduler.domain.config.koordinator_args import DeviceShareArgs
from koord_scheduler.domain.framework import extension_points as points
from koord_scheduler.domain.framework.cluster import Cluster
from koord_scheduler.domain.framework.cross_node_points import MOST_DETAILS
from koord_scheduler.domain.framework.lifecycle_hooks import Eviction, PageAnswer, Status
from koord_scheduler.domain.framework.node_points import Lack, Reads, RowFunction, RowStates
from koord_scheduler.domain.framework.outcomes import Rejection
from koord_scheduler.domain.framework.plugin import ExtensionPoint
from koord_scheduler.domain.framework.topology_hints import NO_HINTS, Hints, Zones, ids_of
from koord_scheduler.domain.plugins.device import fragmentation
from koord_scheduler.domain.plugins.device.allocator import NodeDevices, Terms, allocate
from koord_scheduler.domain.plugins.device.explaining import device_pages, needed_devices, shortage, shortages
from koord_scheduler.domain.plugins.device.fragmentation import fragmentation_scores, learned_from
from koord_scheduler.domain.plugins.device.inventory import Inventories
from koord_scheduler.domain.plugins.device.node_scores import (
    device_row_score,
    device_scores,
    score_of_reservation,
    scoring_of,
    shared_states,
)
from koord_scheduler.domain.plugins.device.node_states import NO_DEVICE_OBJECT, NodeStates
from koord_scheduler.domain.plugins.device.numa_hints import device_hints
from koord_scheduler.domain.plugins.device.picking import MAX_SCORE, NOT_RESERVED
from koord_scheduler.domain.plugins.device.pod_devices import PLUGIN, PodDevices
from koord_scheduler.domain.plugins.device.refusal import Refusal
from koord_scheduler.domain.plugins.device.templates import NO_TEMPLATE, GpuTemplates
from koord_scheduler.domain.plugins.reservation.books import NO_ROWS, ReservationBooks
from koord_scheduler.domain.plugins.reservation.usable import among


class DeviceShare:
    """The plugin DeviceShare: allocates GPUs, RDMA devices and FPGAs to pods, whole or in part."""

    name = PLUGIN
    extension_points: tuple[ExtensionPoint[Any], ...] = (
        points.CONCERNS,
        points.PRE_FILTER,
        points.PRE_BIND,
        points.FILTER,
        points.ROW_FILTER,
        points.SCORE,
        points.ROW_SCORE,
        points.ROW_STATES,
        points.RESERVE,
        points.FOLLOW_NODES,
        points.READ_POD,
        points.TOPOLOGY_HINTS,
        points.PAGES,
        points.FOLD,
        points.CONTROLLER,
    )
    reads = Reads.LOAD
    normalizes = True

    def __init__(
        self, cluster: Cluster, inventories: Inventories, reservations: ReservationBooks, args: DeviceShareArgs
    ) -> None:
        self._nodes = cluster.nodes
        self._affinities = cluster.affinities
        self._inventories = inventories
        self._adapts = cluster.gates.device_plugin_adaption
        self._is_aligned = not args.disable_device_numa_topology_alignment
        self._honors_pcie_level = args.enable_pcie_level_exclusive
        scoring = scoring_of(args.scoring_strategy)
        unsupported = frozenset((each.vendor, each.model) for each in args.gpu_share_unsupported_models)
        listed = args.gpu_shared_resource_templates_config
        self._templates = GpuTemplates(listed.matched_resources)
        cluster.follow_config(listed.config_map_namespace, listed.config_map_name, self._read_templates)
        self.states = NodeStates(cluster.nodes, inventories, scoring, unsupported, self._templates)
        self._plain_terms = Terms(scoring=scoring)
        cluster.accounting.allocations.append(self)
        self._reservations = reservations
        reservations.lenders[self.name] = self
        self._fragmentation = fragmentation_scores(cluster.nodes, self.states, args.gpu_fragmentation)
        self._learned = learned_from(args.gpu_fragmentation)
        if self._fragmentation is not None:
            self.extension_points = tuple(each for each in self.extension_points if each is not points.ROW_SCORE)

    # --- what is read of pods ----------------------------------------------------------------------------------------

    def concerns(self, pod: Pod) -> bool:
        """Return whether the pod requests devices, or another scheduler gave it some. Scores by fragmentation concern
        every pod, because pods without GPUs take the CPUs beside them.
        """
        if keys.DEVICE_ALLOCATED in pod.metadata.annotations or self._fragmentation is not None:
            return True
        containers = (*pod.spec.containers, *pod.spec.init_containers)
        return any(not DEVICE_NAMES.isdisjoint(each.resources.requests) for each in containers) or (
            not DEVICE_NAMES.isdisjoint(pod.spec.overhead)
        )

    def read(self, pod: Pod) -> Hashable:
        try:
            amounts = at_most_max(pod_requests(pod))
        except InvalidInput:
            amounts = {}
        meta, honors = pod.metadata, self._honors_pcie_level
        found = PodDevices(amounts, meta.annotations, meta.labels, honors_pcie_level=honors, templates=self._templates)
        return found if found.requests or found.error else None

    def _asked(self, pod: PodClass) -> PodDevices | None:
        return cast("PodDevices | None", pod.aspects.get(self.name))

    # --- what is followed --------------------------------------------------------------------------------------------

    def put_node(self, row: int, node: Node) -> None:
        self.states.put_node(row, node.metadata.labels)

    def drop_node(self, row: int) -> None:
        self.states.drop_node(row)

    def _read_templates(self, data: Mapping[str, str]) -> list[str]:
        problems = self._templates.read(data)
        self.states.templates_changed()
        return problems

    def may_refuse(self, pod_class: PodClass) -> bool:
        """Return whether pods of the class request devices, so that a node may lack them because of other pods."""
        return self._asked(pod_class) is not None

    def took(self, row: int, pod_info: PodInfo) -> None:
        devices = pod_info.allocation.devices
        if pod_info.is_guest and not devices and pod_info.pod_class is not None:
            devices = self._would_give(row, pod_info.pod_class)
        if devices:
            used = pod_info.allocation.reservation
            self.states.take(row, pod_info.uid, devices, "" if used is None else used.uid)

    def gave(self, row: int, pod_info: PodInfo) -> None:
        used = pod_info.allocation.reservation
        self.states.give(row, pod_info.uid, "" if used is None else used.uid)

    def _would_give(self, row: int, pod_class: PodClass) -> tuple[AllocatedDevice, ...]:
        asked, node = self._asked(pod_class), self.states.devices_of(row)
        if asked is None or asked.error or node is None:
            return ()
        found = allocate(node, asked, Terms(scoring=self.states.scoring))
        return () if isinstance(found, Refusal) else found

    # --- the cycle ---------------------------------------------------------------------------------------------------

    def pre_filter(self, pod: PodRecord, now: float) -> Rejection | None:
        asked = self._asked(pod.subject.pod_class) if pod.subject is not None else None
        if asked is None:
            return None
        error = asked.error
        if asked.needs_template and asked.gpu is not None and not self._templates.has_one_for(asked.gpu):
            error = NO_TEMPLATE
        return Rejection(plugin=self.name, message=error, key=error) if error else None

    def filter(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """Return codes that refuse nodes with too few free devices. Nodes with a Reservation for the pod are checked
        later.
        """
        asked = self._asked(pod)
        if asked is None:
            return None
        codes, own = self.states.codes(asked, rows), self._reservations.rows_of(pod)
        if own:
            codes[among(rows, own, nodes.capacity)] = 0
        return codes

    def row_filter(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        asked = self._asked(pod)
        if asked is None:
            return None
        code, own = self.states.code_function(asked), self._reservations.rows_of(pod)
        return code if own is NO_ROWS else lambda row: 0 if row in own else code(row)

    # --- Reservations ------------------------------------------------------------------------------------------------

    def lent(self, row: int, uid: str, limits: frozenset[str] | None) -> AbstractContextManager[None]:
        return self.states.lent(row, uid, limits)

    def reservation_score(self, pod_class: PodClass, row: int, uid: str) -> int:
        asked = self._asked(pod_class)
        return 0 if asked is None else score_of_reservation(self.states, asked, row, uid)

    def refused(self, pod_class: PodClass, row: int) -> tuple[str, ...]:
        asked = self._asked(pod_class)
        code = 0 if asked is None else self.states.code_on(asked, row)
        if not code and asked is not None and self.states.reserved_on(row).required:
            refusal = self.states.refused_within(asked, row, None)
            return () if refusal is None else (refusal,)
        return (self.states.codes_of.reason(code),) if code else ()

    # --- reasons and scores ------------------------------------------------------------------------------------------

    def reasons(self, pod: PodClass, nodes: NodeColumns, code: int) -> tuple[str, ...]:
        return (self.states.codes_of.reason(code),)

    def unresolvable(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> BoolArray:
        asked = self._asked(pod)
        if asked is None:
            return np.zeros(len(rows), np.bool_)
        return self.states.codes_of.never(self.states.codes(asked, rows))

    def details(self, pod: PodClass, nodes: NodeColumns, rows: Rows, reason: str) -> list[str]:
        asked, names = self._asked(pod), nodes.names
        found = [(names[row], self.states.devices_of(row)) for row in row_list(rows[:MOST_DETAILS])]
        return [] if asked is None or asked.error else shortages(found, asked, reason)

    def lack(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> Lack:
        asked = self._asked(pod)
        return Lack() if asked is None or asked.error else Lack(needs=needed_devices(asked))

    def score(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        asked = self._asked(pod)
        if self._fragmentation is not None:
            return self._fragmentation.combined(pod.requests.get(CPU, 0), asked, rows)
        return None if asked is None else device_scores(self.states, asked, rows)

    def row_score(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        asked = self._asked(pod)
        return None if asked is None else device_row_score(self.states, asked)

    def row_states(self, pod: PodClass, nodes: NodeColumns) -> RowStates | None:
        """Return state and results that classes share if they differ only in parts of GPUs. None if they share
        nothing.
        """
        asked = self._asked(pod)
        if self._fragmentation is not None or self._reservations.rows_of(pod) is not NO_ROWS:
            return None
        return RowStates() if asked is None else shared_states(self.states, asked)

    def normalize(self, raw: IntArray, low: int, high: int) -> IntArray:
        """Scale the scores so that the best node has 100."""
        return raw if high in (0, MAX_SCORE) else raw * MAX_SCORE // high

    def reserve(self, pod: PodRecord, node: str) -> Allocation | Rejection:
        row = self._nodes.row(node)
        asked = self._asked(pod.subject.pod_class) if pod.subject is not None else None
        devices = self.states.devices_of(row) if row is not None else None
        if asked is None:
            return NOTHING
        if devices is None:
            if asked.needs_device:
                return Rejection(plugin=self.name, message=f"node {node}: {NO_DEVICE_OBJECT.reason}", resolvable=True)
            return NOTHING
        assert row is not None and pod.subject is not None, "the node has devices"  # noqa: PT018
        with self._reservations.nominated_lent(pod.subject.pod_class, row):
            found = self.states.allocate(asked, row, self._terms(pod, asked, row, devices))
        if isinstance(found, Refusal):
            text = shortage(devices, asked, found.reason)
            message = f"node {node}: {found.reason}" + (f" ({text})" if text else "")
            return Rejection(plugin=self.name, message=message, resolvable=found.is_resolvable)
        return Allocation(devices=found)

    def _terms(self, pod: PodRecord, asked: PodDevices, row: int, devices: NodeDevices) -> Terms:
        zones = self._affinities.of(pod.uid) if self._is_aligned and devices.inventory.numa_nodes else None
        reserved, scores = self.states.reserved_on(row), self._fragmentation
        if zones is None and reserved is NOT_RESERVED and scores is None:
            return self._plain_terms
        cpu = pod.subject.pod_class.requests.get(CPU, 0) if pod.subject is not None else 0
        return Terms(
            zones=None if zones is None else frozenset(ids_of(zones)),
            scoring=self.states.scoring,
            reserved=reserved,
            card_scores={} if scores is None else scores.card_scores(cpu, asked, row),
        )

    def unreserve(self, pod: PodRecord, node: str) -> Sequence[str]:
        """Return no pods, because there is nothing to undo: devices count with the pod on its node."""
        return ()

    def pre_bind(self, pod: PodRecord, node: str) -> Mapping[str, str]:
        """Return the annotations that device plugins of vendors read. Empty without the gate DevicePluginAdaption."""
        row = self._nodes.row(node)
        devices = self.states.devices_of(row) if self._adapts and row is not None else None
        if devices is None or pod.pod is None:
            return {}
        return vendor_annotations(
            devices.use.holders.get(pod.uid, ()),
            vendor=devices.labels.get(keys.GPU_VENDOR, ""),
            isolation_provider=pod.pod.metadata.labels.get(keys.GPU_ISOLATION_PROVIDER, ""),
            node=node,
            at_ns=round(pod.placed_at * 1e9),
        )

    # --- alignment to NUMA nodes -------------------------------------------------------------------------------------

    def gives_hints(self, pod: PodClass) -> bool:
        return self._is_aligned and self._asked(pod) is not None

    def topology_hints(self, pod: PodClass, row: int) -> Hints | str:
        asked, node = self._asked(pod), self.states.devices_of(row)
        if asked is None or not self._is_aligned:
            return NO_HINTS
        if asked.error:
            return asked.error
        if node is None:
            return NO_DEVICE_OBJECT.reason if asked.needs_device else NO_HINTS
        found = device_hints(node, asked, self.states.scoring, self.states.reserved_on(row))
        return found.reason if isinstance(found, Refusal) else found

    def refused_within(self, pod: PodClass, row: int, zones: Zones | None) -> str | None:
        asked, node = self._asked(pod), self.states.devices_of(row)
        if asked is None or asked.error:
            return None if asked is None else asked.error
        is_restricted = zones is not None and self._is_aligned and node is not None and bool(node.inventory.numa_nodes)
        return self.states.refused_within(asked, row, frozenset(ids_of(zones)) if is_restricted and zones else None)

    def state_of(self, row: int) -> Hashable:
        return self.states.state_of(row) if self.states.devices_of(row) is not None else None

    # --- typical pods, learned ---------------------------------------------------------------------------------------

    @property
    def kinds(self) -> frozenset[str]:
        return fragmentation.KINDS if self._learned is not None else frozenset()

    def apply(self, event: Event, stored: StoredEvent) -> bool:
        """Learn typical pods from an event. Return False: they change only scores, so no waiting pod can use it."""
        if self._learned is not None and self._fragmentation is not None and self._learned.apply(event, stored):
            self._fragmentation.learn(self._learned.typical)
        return False

    def facts(self) -> bytes:
        return self._learned.facts() if self._learned is not None else b""

    def restore(self, facts: bytes) -> None:
        """Use the learned typical pods of a snapshot. No-op if it has none, or if they are not learned now."""
        if facts and self._learned is not None and self._fragmentation is not None:
            self._learned.restore(facts)
            self._fragmentation.learn(self._learned.typical)

    def control_due(self) -> float | None:
        """Return the Unix seconds at which typical pods are learned again; None if they are not learned."""
        return self._learned.due() if self._learned is not None else None

    def control(self, now: float) -> Sequence[Eviction | Status]:
        """Compute the typical pods of the last window of time. Return them as a status to publish if they changed."""
        event = self._learned.learn(now) if self._learned is not None else None
        return [] if event is None else [Status(fragmentation.REF, event)]

    def pages(self) -> Mapping[str, PageAnswer]:
        return device_pages(self._nodes, self.states)
