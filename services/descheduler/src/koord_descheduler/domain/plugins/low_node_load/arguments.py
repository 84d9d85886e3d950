"""Arguments of LowNodeLoad. Decoding moves the thresholds of the top level into the first node pool.

Source:
    descheduler spec, 3.2 (6), 8.1
"""

from collections.abc import Iterator, Mapping
from typing import Final

from koordcore.protocol.component_config import Duration, Text, WireModel
from koordcore.values.invalid import InvalidInput
from pydantic import StrictBool, StrictFloat, StrictInt

from koord_descheduler.domain.config.arguments import (
    LabelSelectorArgs,
    Namespaces,
    PodSelector,
    check_namespaces,
    check_pod_selectors,
    check_selector,
    native_args,
)
from koord_descheduler.domain.plugins.low_node_load.anomaly import AnomalyCondition

DEFAULT_POOL: Final = "__default_node_pool__"
Thresholds = Mapping[Text, StrictFloat]
"""Resource -> percent of the capacity; above 100 is allowed."""
Weights = Mapping[Text, StrictInt]
_ALWAYS_WEIGHED: Final = ("cpu", "memory")
_DEFAULTS: Final = AnomalyCondition()


class AnomalyConditionArgs(WireModel):
    """Numbers of rounds after which pods leave a hot node.

    A count of 0 and a missing timeout stand for the defaults.
    """

    timeout: Duration | None = None
    consecutive_abnormalities: StrictInt = 0
    consecutive_normalities: StrictInt = 0

    def condition(self) -> AnomalyCondition:
        """Missing values have their defaults."""
        return AnomalyCondition(
            abnormalities=self.consecutive_abnormalities or _DEFAULTS.abnormalities,
            normalities=self.consecutive_normalities or _DEFAULTS.normalities,
            timeout=_DEFAULTS.timeout if self.timeout is None else self.timeout,
        )

    def filled_from(self, other: AnomalyCondition) -> "AnomalyConditionArgs":
        """Missing counts are taken from `other`. A missing timeout becomes the default one."""
        return AnomalyConditionArgs(
            timeout=_DEFAULTS.timeout if self.timeout is None else self.timeout,
            consecutive_abnormalities=self.consecutive_abnormalities or other.abnormalities,
            consecutive_normalities=self.consecutive_normalities or other.normalities,
        )


class LoadLimits(WireModel):
    """Arguments that the top level and every node pool have."""

    node_selector: LabelSelectorArgs | None = None  # Nodes of the pool; None for all
    use_deviation_thresholds: StrictBool = False  # Whether thresholds are distances from the average usage of the pool
    low_thresholds: Thresholds | None = None  # A node with usage at or below all of them takes pods
    high_thresholds: Thresholds | None = None  # A node with usage above one of them gives up pods
    prod_low_thresholds: Thresholds | None = None  # As `low_thresholds`, for the usage of prod pods
    prod_high_thresholds: Thresholds | None = None  # As `high_thresholds`, for the usage of prod pods
    resource_weights: Weights | None = None  # Resource -> weight in the order of nodes and of pods
    anomaly_condition: AnomalyConditionArgs | None = None  # Numbers of rounds after which pods leave a hot node


class NodePoolArgs(LoadLimits):
    """A node pool with its own thresholds.

    Thresholds, weights and the anomaly condition are taken from the top level if the pool leaves them out. The node
    selector and `use_deviation_thresholds` are not.
    """

    name: Text = ""


class LowNodeLoadArgs(LoadLimits):
    paused: StrictBool = False  # Whether the plugin does nothing
    dry_run: StrictBool = False
    number_of_nodes: StrictInt = 0  # The plugin evicts only if more nodes than this can take pods
    node_metric_expiration_seconds: StrictInt = 180  # Age in seconds at which a usage report no longer counts
    evictable_namespaces: Namespaces | None = None  # Namespaces of the pods; None for all
    pod_selectors: tuple[PodSelector, ...] = ()  # Select the pods; none: all
    node_fit: StrictBool = True  # Whether a pod must fit a node that takes pods
    detector_cache_timeout: Duration = 300.0  # Seconds for which a detector is kept after its last abnormal observation
    # The pools; after `decode`, the first one has the limits of the top level.
    node_pools: tuple[NodePoolArgs, ...] = ()


def decode(raw: Mapping[str, object]) -> LowNodeLoadArgs:
    """Return the normal form: thresholds only inside `node_pools`, everything filled in.

    Raises:
        InvalidConfiguration: Fields are unknown or have wrong types.
    """
    args = native_args(raw, LowNodeLoadArgs)
    pools = args.node_pools
    if not pools or pools[0].name != DEFAULT_POOL:
        pools = (
            NodePoolArgs(name=DEFAULT_POOL, **{name: getattr(args, name) for name in LoadLimits.model_fields}),
            *pools,
        )
    cleared = {name: field.default for name, field in LoadLimits.model_fields.items()}
    return args.model_copy(update={**cleared, "node_pools": tuple(_filled(pool, args) for pool in pools)})


def _filled(pool: NodePoolArgs, top: LoadLimits) -> NodePoolArgs:
    """What a pool leaves out is taken from the top level, and all weights are given."""
    condition = (top.anomaly_condition or AnomalyConditionArgs()).condition()
    own = pool.anomaly_condition
    values: dict[str, object] = {
        name: getattr(pool, name) if getattr(pool, name) is not None else getattr(top, name)
        for name in ("low_thresholds", "high_thresholds", "prod_low_thresholds", "prod_high_thresholds")
    }
    low, high = pool.low_thresholds or top.low_thresholds, pool.high_thresholds or top.high_thresholds
    weights = dict(pool.resource_weights or top.resource_weights or {})
    for name in (*_ALWAYS_WEIGHED, *(low or ()), *(high or ())):
        if weights.get(name, 0) <= 0:
            weights[name] = 1
    values["resource_weights"] = weights
    values["anomaly_condition"] = (
        AnomalyConditionArgs(
            timeout=condition.timeout,
            consecutive_abnormalities=condition.abnormalities,
            consecutive_normalities=condition.normalities,
        )
        if own is None
        else own.filled_from(condition)
    )
    return pool.model_copy(update=values)


def check(args: LowNodeLoadArgs) -> Iterator[InvalidInput]:
    if args.number_of_nodes < 0:
        yield InvalidInput("at least 0", args.number_of_nodes, "numberOfNodes")
    if args.node_metric_expiration_seconds <= 0:
        yield InvalidInput("above 0", args.node_metric_expiration_seconds, "nodeMetricExpirationSeconds")
    yield from check_namespaces(args.evictable_namespaces, "evictableNamespaces")
    yield from check_pod_selectors(args.pod_selectors, "podSelectors")
    for index, pool in enumerate(args.node_pools):
        path = f"nodePools[{index}]"
        yield from check_selector(pool.node_selector, f"{path}.nodeSelector")
        yield from _check_thresholds(pool, path)
        is_complete = bool(pool.low_thresholds) and bool(pool.high_thresholds)
        if is_complete or pool.name != DEFAULT_POOL or len(args.node_pools) == 1:
            yield from _missing_thresholds(pool, path)
        condition = pool.anomaly_condition
        if condition is not None:
            for name in ("consecutive_abnormalities", "consecutive_normalities"):
                if getattr(condition, name) <= 0:
                    wire = AnomalyConditionArgs.model_fields[name].alias
                    yield InvalidInput("above 0", getattr(condition, name), f"{path}.anomalyCondition.{wire}")


def _check_thresholds(pool: NodePoolArgs, path: str) -> Iterator[InvalidInput]:
    low, high = pool.low_thresholds or {}, pool.high_thresholds or {}
    prod_low, prod_high = pool.prod_low_thresholds or {}, pool.prod_high_thresholds or {}
    maps = {
        "lowThresholds": low,
        "highThresholds": high,
        "prodLowThresholds": prod_low,
        "prodHighThresholds": prod_high,
    }
    for field, thresholds in maps.items():
        for name, percent in thresholds.items():
            if not 0 <= percent < float("inf"):
                yield InvalidInput("a percentage of at least 0", percent, f"{path}.{field}.{name}")
    pairs = (
        ("lowThresholds", low, "highThresholds", high),
        ("prodLowThresholds", prod_low, "prodHighThresholds", prod_high),
        ("prodHighThresholds", prod_high, "highThresholds", high),
    )
    for field, lower, other, upper in pairs:
        for name, percent in lower.items():
            if name in upper and percent > upper[name]:
                yield InvalidInput(f"at most {other} ({upper[name]:g})", percent, f"{path}.{field}.{name}")


def _missing_thresholds(pool: NodePoolArgs, path: str) -> Iterator[InvalidInput]:
    """A resource needs both thresholds: without a low one, every node would count as lightly used, also a hot one.

    The caller leaves out a top level with thresholds of one kind only: its pools complete them, and it does nothing.

    Source: reality.md, 5.5
    """
    low, high = pool.low_thresholds or {}, pool.high_thresholds or {}
    for field, given, other, missing in (
        ("lowThresholds", low, "highThresholds", high),
        ("highThresholds", high, "lowThresholds", low),
    ):
        for name in sorted(given.keys() - missing.keys()):
            yield InvalidInput(f"given, because {field} has it", None, f"{path}.{other}.{name}")
