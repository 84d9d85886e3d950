"""Arguments of the MigrationController, and of the rules about which pods it may evict.

Source:
    descheduler spec, 6.2, 7.1
"""

import math
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

from koordcore.protocol.component_config import Duration, IntegerOrText, NumberOrText, SignedDuration, Text, WireModel
from koordcore.protocol.migrations import EVICT_DIRECTLY, RESERVATION_FIRST
from koordcore.values.invalid import InvalidInput
from pydantic import StrictBool, StrictInt

from koord_descheduler.domain.config.arguments import (
    LabelSelectorArgs,
    Namespaces,
    PriorityThreshold,
    check_choice,
    check_namespaces,
    check_selector,
    check_threshold,
    parse_selector_text,
)

_PERCENT: Final = re.compile(r"([+-]?[0-9]{1,9})%")


def percentage(text: str) -> int:
    """The number of a percentage such as "20%".

    Raises:
        InvalidInput: The text is not a whole number followed by %.
    """
    match = _PERCENT.fullmatch(text)
    if match is None:
        raise InvalidInput("a percentage such as 20%", text)
    return int(match[1])


def workload_limit(replicas: int, value: int | str | None) -> int:
    """The maximum number of pods of a workload that may be in migration, or unavailable, at the same time.

    A number is taken as it is, a percentage of the replicas is rounded down; 0 becomes 1. Without a value: 10 % of more
    than 10 replicas (rounded down), 2 of 4 to 10 replicas, else 1. The result never exceeds the replicas.

    Raises:
        InvalidInput: The text is not a percentage.
    """
    if value is None:
        limit = replicas // 10 if replicas > 10 else 2 if replicas >= 4 else 1
    elif isinstance(value, str):
        limit = percentage(value) * replicas // 100 or 1
    else:
        limit = value or 1
    return min(limit, replicas)


class Gate(StrEnum):
    MAX_UNAVAILABLE_PER_WORKLOAD = "MaxUnavailablePerWorkload"
    MAX_MIGRATING_PER_WORKLOAD = "MaxMigratingPerWorkload"
    MAX_MIGRATING_PER_NODE = "MaxMigratingPerNode"
    MAX_MIGRATING_PER_NAMESPACE = "MaxMigratingPerNamespace"
    MAX_MIGRATING_GLOBALLY = "MaxMigratingGlobally"
    EXPECTED_REPLICAS = "ExpectedReplicas"
    PVC = "PVC"
    BARE_PODS = "BarePods"
    LOCAL_STORAGE = "LocalStorage"
    SYSTEM_CRITICAL = "SystemCritical"
    PRIORITY_THRESHOLD = "PriorityThreshold"
    LABEL_SELECTOR = "LabelSelector"
    NAMESPACES = "Namespaces"
    NODE_FIT = "NodeFit"


EVICTION: Final = "Eviction"
DELETE: Final = "Delete"
SOFT_EVICTION: Final = "SoftEviction"
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
PROPAGATIONS: Final = ("Orphan", "Background", "Foreground")
WORKLOAD: Final = "workload"
NAMESPACE: Final = "namespace"


class ObjectLimiter(WireModel):
    """Limits evictions per workload or namespace over time."""

    duration: Duration = 0.0  # Seconds in which `max_migrating` pods may be evicted; 0 switches the limiter off
    # Number or percentage of pods; None: the limit per workload of the controller. A namespace needs a number; None or
    # a percentage switches its limiter off.
    max_migrating: IntegerOrText | None = None
    burst: StrictInt = 0  # Largest number of evictions at once; 0 stands for 1


class ArbitrationArgs(WireModel):
    """Arbitration: whether jobs wait for it, and the seconds between two passes."""

    enabled: StrictBool = True
    interval: Duration = 0.5


class MigrationControllerArgs(WireModel):
    """Arguments of the MigrationController. Times are in seconds.

    The attributes `evict_..._pods` let pods leave that stay otherwise.
    """

    dry_run: StrictBool = False  # Whether evictions are counted and no job is created
    max_concurrent_reconciles: StrictInt = 1  # Accepted, without effect
    evict_failed_bare_pods: StrictBool = False
    evict_all_bare_pods: StrictBool = False
    evict_local_storage_pods: StrictBool = False
    evict_system_critical_pods: StrictBool = False
    ignore_pvc_pods: StrictBool = False  # Whether pods with volume claims stay
    # Whether pods leave although an annotation for an autoscaler forbids it: karpenter.sh/do-not-disrupt, or
    # cluster-autoscaler.kubernetes.io/safe-to-evict. Koordinator does not know this argument.
    evict_do_not_disrupt_pods: StrictBool = False
    # Pods with this priority or a higher one stay; None: not checked.
    priority_threshold: PriorityThreshold | None = None
    label_selector: LabelSelectorArgs | None = None  # Pods that may leave; None: all. The same holds for `namespaces`.
    namespaces: Namespaces | None = None
    node_fit: StrictBool = False  # Whether a pod may leave only if it fits another ready node
    node_selector: Text = ""  # Nodes that count for `node_fit`, as text such as "a=b,!c"; "": all
    skip_eviction_gates: tuple[Text, ...] = ()  # Checks that are switched off, see `Gate`
    # Largest number of pods in migration; None or 0: no limit. The limits per namespace and per node are alike.
    max_migrating_globally: StrictInt | None = None
    max_migrating_per_namespace: StrictInt | None = None
    max_migrating_per_node: StrictInt | None = 2
    # Number or percentage; None: a default that depends on the replicas.
    max_migrating_per_workload: IntegerOrText | None = None
    max_unavailable_per_workload: IntegerOrText | None = None  # Largest number of unavailable pods, in the same form
    skip_check_expected_replicas: StrictBool = False  # Whether pods of workloads with too few replicas may leave
    # "workload" or "namespace" -> limit on evictions over time.
    object_limiters: Mapping[Text, ObjectLimiter] = {WORKLOAD: ObjectLimiter(duration=300.0)}
    default_job_mode: Text = RESERVATION_FIRST  # Mode of the created jobs: ReservationFirst or EvictDirectly
    default_job_ttl: SignedDuration = 300.0  # Seconds after which a job is given up; 0: never
    # Schedulers that know Reservations. With ReservationFirst, pods of other ones stay.
    scheduler_names: tuple[Text, ...] = ("koord-scheduler",)
    evict_qps: NumberOrText = 10  # Evictions per second of the process, as a number or as text
    evict_burst: StrictInt = 1  # Largest number of evictions at once
    eviction_policy: Text = EVICTION  # How pods leave: Eviction, Delete, or SoftEviction (by an annotation)
    # Options of the deletion for jobs that have none; None: none.
    default_delete_options: Mapping[Text, object] | None = None
    arbitration_args: ArbitrationArgs = ArbitrationArgs()

    @property
    def evictions_per_second(self) -> float:
        """Nan if the text of `evict_qps` is not a decimal number."""
        text = str(self.evict_qps)
        return float(text) if _DECIMAL.fullmatch(text) else math.nan

    def skips(self, gate: Gate) -> bool:
        return gate in self.skip_eviction_gates


def check(args: MigrationControllerArgs) -> Iterator[InvalidInput]:
    if args.max_concurrent_reconciles < 1:
        yield InvalidInput("at least 1", args.max_concurrent_reconciles, "maxConcurrentReconciles")
    yield from check_selector(args.label_selector, "labelSelector")
    yield from check_namespaces(args.namespaces, "namespaces")
    yield from check_threshold(args.priority_threshold)
    yield from _check_delete_options(args.default_delete_options or {})
    try:
        parse_selector_text(args.node_selector)
    except InvalidInput as error:
        yield error.at("nodeSelector")
    for index, gate in enumerate(args.skip_eviction_gates):
        yield from check_choice(gate, Gate, f"skipEvictionGates[{index}]")
    yield from _check_limits(args)
    yield from check_choice(args.default_job_mode, (RESERVATION_FIRST, EVICT_DIRECTLY), "defaultJobMode")
    yield from check_choice(args.eviction_policy, (EVICTION, DELETE, SOFT_EVICTION), "evictionPolicy")
    if not 0 < args.evictions_per_second < math.inf:
        yield InvalidInput("a number above 0", args.evict_qps, "evictQPS")
    if args.default_job_ttl < 0:
        yield InvalidInput("at least 0s", f"{args.default_job_ttl:g}s", "defaultJobTTL")
    if args.evict_burst <= 0:
        yield InvalidInput("above 0", args.evict_burst, "evictBurst")


def _check_delete_options(options: Mapping[str, object]) -> Iterator[InvalidInput]:
    """The API server would refuse every eviction with such options."""
    seconds, policy = options.get("gracePeriodSeconds", 0), options.get("propagationPolicy", PROPAGATIONS[0])
    if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds < 0:
        yield InvalidInput("an integer of at least 0", seconds, "defaultDeleteOptions.gracePeriodSeconds")
    if policy not in PROPAGATIONS:
        yield InvalidInput(f"one of {', '.join(PROPAGATIONS)}", policy, "defaultDeleteOptions.propagationPolicy")


def _check_limits(args: MigrationControllerArgs) -> Iterator[InvalidInput]:
    for value, path in (
        (args.max_migrating_globally, "maxMigratingGlobally"),
        (args.max_migrating_per_namespace, "maxMigratingPerNamespace"),
        (args.max_migrating_per_node, "maxMigratingPerNode"),
    ):
        if value is not None and value < 0:
            yield InvalidInput("at least 0", value, path)
    yield from _check_amount(args.max_migrating_per_workload, "maxMigratingPerWorkload")
    yield from _check_amount(args.max_unavailable_per_workload, "maxUnavailablePerWorkload")
    for name, limiter in args.object_limiters.items():
        yield from check_choice(name, (WORKLOAD, NAMESPACE), "objectLimiters")
        yield from _check_amount(limiter.max_migrating, f"objectLimiters[{name}].maxMigrating")
        if limiter.burst < 0:
            yield InvalidInput("at least 0", limiter.burst, f"objectLimiters[{name}].burst")


def _check_amount(amount: int | str | None, path: str) -> Iterator[InvalidInput]:
    if isinstance(amount, str):
        try:
            percentage(amount)
        except InvalidInput as error:
            yield error.at(path)
    elif amount is not None and amount < 0:
        yield InvalidInput("at least 0, or a percentage", amount, path)
