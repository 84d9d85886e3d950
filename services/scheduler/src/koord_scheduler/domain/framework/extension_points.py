"""The table of extension points, from which the scheduler derives everything about them.

A new extension point needs one row of this table and its protocol. The table determines the plugin lists of a profile
(`profile`), the check of what a plugin declares (`plugin.checked`), the measured calls (`runtime.timed`), and the
tables in docs/scheduler-plugins.md (tested).

Source: scheduler-core spec, 1 to 3.
"""

from typing import Any, Final, cast

from koord_scheduler.domain.framework import (
    cross_node_points,
    cycle_points,
    fact_points,
    lifecycle_hooks,
    node_points,
    post_filter,
    topology_hints,
)
from koord_scheduler.domain.framework import cycle_points as transforming
from koord_scheduler.domain.framework.plugin import ExtensionPoint, Point

# --- the scheduling cycle, in its order ------------------------------------------------------------------------------

PRE_ENQUEUE: Final = ExtensionPoint(
    name="PreEnqueue",
    protocol=cycle_points.PreEnqueuePlugin,
    enabled_at=Point.PRE_ENQUEUE,
    asked="before a pod becomes active or backs off",
    answers="why it may not be attempted now; `None`",
)
NEXT_POD: Final = ExtensionPoint(
    name="NextPod",
    protocol=cycle_points.NextPodPlugin,
    enabled_at=Point.PRE_ENQUEUE,
    is_single=True,
    asked="before the queue is asked for a pod; one plugin in all profiles",
    answers="the pod to attempt before all pods of the queue; pods waiting at Permit that lose their nodes",
)
TRANSFORM_POD: Final = ExtensionPoint(
    name="TransformPod",
    protocol=transforming.PodTransformer,
    enabled_at=Point.PRE_FILTER,
    asked="when a pod comes in or changes",
    answers="the pod as all plugins of the profile see it",
)
BEFORE_PRE_FILTER: Final = ExtensionPoint(
    name="BeforePreFilter",
    protocol=transforming.BeforePreFilterPlugin,
    enabled_at=Point.PRE_FILTER,
    timed={"before_pre_filter": "BeforePreFilter"},
    asked="at the beginning of an attempt",
    answers="a copy that replaces the pod in this cycle; `Rejection`; `None`",
)
PRE_FILTER: Final = ExtensionPoint(
    name="PreFilter",
    protocol=cycle_points.PreFilterPlugin,
    enabled_at=Point.PRE_FILTER,
    timed={"pre_filter": "PreFilter"},
    asked="once per attempt, before nodes are filtered",
    answers="`Rejection`; `Candidates`, which restrict the nodes; `None`",
)
AFTER_PRE_FILTER: Final = ExtensionPoint(
    name="AfterPreFilter",
    protocol=transforming.AfterPreFilterPlugin,
    enabled_at=Point.PRE_FILTER,
    timed={"after_pre_filter": "AfterPreFilter"},
    asked="after all `pre_filter`",
    answers="`Rejection`; `None`",
)
FIND_ONE_NODE: Final = ExtensionPoint(
    name="FindOneNode",
    protocol=cycle_points.FindOneNodePlugin,
    enabled_at=Point.PRE_FILTER,
    is_single=True,
    asked="after all `after_pre_filter`; one plugin in a profile",
    answers="as `pre_filter`; the argument `offers` counts how many pods of the job fit on each node",
)
BEFORE_FILTER: Final = ExtensionPoint(
    name="BeforeFilter",
    protocol=transforming.BeforeFilterPlugin,
    enabled_at=Point.FILTER,
    timed={"before_filter": "BeforeFilter"},
    asked="before any filter of an attempt",
    answers="`Views`: which nodes see which copy of the pod, and temporary changes of nodes; `Rejection`; `None`",
)
FILTER: Final = ExtensionPoint(
    name="Filter",
    protocol=node_points.FilterPlugin,
    enabled_at=Point.FILTER,
    asked="for rows that have changed since the last call for the class",
    answers="a code for each row, 0 passes; `reasons` gives its text, `unresolvable` whether evictions cannot help",
)
ROW_FILTER: Final = ExtensionPoint(
    name="RowFilter",
    protocol=node_points.RowFilterPlugin,
    enabled_at=Point.FILTER,
    asked="for one row after a placement changed it; only for filters that read load",
    answers="a function from a row to its code, for one pod equivalence class",
)
TOLERATION_FILTER: Final = ExtensionPoint(
    name="TolerationFilter",
    protocol=node_points.TolerationFilterPlugin,
    enabled_at=Point.FILTER,
    asked="as `Filter`; the point declares that results depend on tolerations only",
    answers="as `Filter`",
)
NODE_SELECTOR_FILTER: Final = ExtensionPoint(
    name="NodeSelectorFilter",
    protocol=node_points.NodeSelectorFilterPlugin,
    enabled_at=Point.FILTER,
    asked="as `Filter`; the point declares that every node outside the pod's selector is refused",
    answers="as `Filter`",
)
AMOUNTS_FILTER: Final = ExtensionPoint(
    name="AmountsFilter",
    protocol=node_points.AmountsFilterPlugin,
    enabled_at=Point.FILTER,
    asked="in preemption and in plans of jobs, instead of calling `filter` for each trial",
    answers="for each resource of the pod: the bit of the code, the column, the amount",
)
CROSS_NODE_FILTER: Final = ExtensionPoint(
    name="CrossNodeFilter",
    protocol=cross_node_points.CrossNodeFilterPlugin,
    enabled_at=Point.FILTER,
    asked="once per `Subject`, and again when `version()` has grown",
    answers="an object that filters rows by pods on other nodes; `None`: every node passes",
)
TOPOLOGY_HINTS: Final = ExtensionPoint(
    name="TopologyHints",
    protocol=topology_hints.TopologyHintsPlugin,
    enabled_at=Point.FILTER,
    asked="for one node, where pod or node has a topology policy, about pods that ask for the plugin's resources",
    answers="the NUMA zones that can satisfy the pod; whether it fits inside the zones that were chosen",
)
TOPOLOGY_MANAGER: Final = ExtensionPoint(
    name="TopologyManager",
    protocol=topology_hints.TopologyManagerPlugin,
    enabled_at=Point.FILTER,
    asked="once, when the profile is made",
    answers="nothing; it gets the plugins whose hints it merges",
)
POST_FILTER: Final = ExtensionPoint(
    name="PostFilter",
    protocol=post_filter.PostFilterPlugin,
    enabled_at=Point.POST_FILTER,
    timed={"post_filter": "PostFilter"},
    asked="when no node is feasible, until one plugin finds victims",
    answers="the result of `search.on_one_node(rules)` or `search.for_job(rules)`: the pods to evict; `None`",
)
AFTER_POST_FILTER: Final = ExtensionPoint(
    name="AfterPostFilter",
    protocol=cycle_points.AfterPostFilterPlugin,
    enabled_at=Point.POST_FILTER,
    timed={"after_post_filter": "AfterPostFilter"},
    asked="after every failed attempt",
    answers="what the failure means for other pods of the gang",
)
BEFORE_SCORE: Final = ExtensionPoint(
    name="BeforeScore",
    protocol=transforming.BeforeScorePlugin,
    enabled_at=Point.SCORE,
    timed={"before_score": "BeforeScore"},
    asked="when two or more nodes are feasible and no plugin prefers one of them",
    answers="`Scored`: which nodes are scored, for which copy of the pod; `Rejection`; `None`",
)
SCORE: Final = ExtensionPoint(
    name="Score",
    protocol=node_points.ScorePlugin,
    enabled_at=Point.SCORE,
    asked="as `Filter`",
    answers="a raw score for each row; `normalize` turns it into 0..100, which counts times the weight",
)
ROW_SCORE: Final = ExtensionPoint(
    name="RowScore",
    protocol=node_points.RowScorePlugin,
    enabled_at=Point.SCORE,
    asked="as `RowFilter`",
    answers="a function from a row to its raw score",
)
ROW_STATES: Final = ExtensionPoint(
    name="RowStates",
    protocol=node_points.RowStatesPlugin,
    asked="once for each pod equivalence class; only for filters and scores that read load",
    answers="`RowStates`: what the class shares with similar classes, and what follows from a state; `None`",
)
CROSS_NODE_SCORE: Final = ExtensionPoint(
    name="CrossNodeScore",
    protocol=cross_node_points.CrossNodeScorePlugin,
    enabled_at=Point.SCORE,
    asked="as `CrossNodeFilter`",
    answers="scores within 0..100 of the feasible rows",
)
RESIZE_POD: Final = ExtensionPoint(
    name="ResizePod",
    protocol=transforming.ResizePodPlugin,
    enabled_at=Point.RESERVE,
    timed={"resize_pod": "ResizePod"},
    asked="when a node is chosen, with feature gate `ResizePod`",
    answers="the pod with other resources, with which it counts from then on; `Rejection`; `None`",
)
RESERVE: Final = ExtensionPoint(
    name="Reserve",
    protocol=cycle_points.ReservePlugin,
    enabled_at=Point.RESERVE,
    timed={"reserve": "Reserve", "unreserve": "Unreserve"},
    asked="when a node is chosen; `unreserve` when the pod loses it",
    answers="`Allocation`, part of the placement; `Rejection`; `unreserve`: other pods that lose their nodes",
)
PERMIT: Final = ExtensionPoint(
    name="Permit",
    protocol=cycle_points.PermitPlugin,
    enabled_at=Point.PERMIT,
    timed={"permit": "Permit"},
    asked="when resources are reserved for the pod",
    answers="`Rejection`; `Wait(seconds)`; `Allow(waiting=...)`: these waiting pods are placed in the same append",
)
PRE_BIND: Final = ExtensionPoint(
    name="PreBind",
    protocol=lifecycle_hooks.PreBindPlugin,
    enabled_at=Point.PRE_BIND,
    timed={"pre_bind": "PreBind"},
    asked="when Permit has allowed the pod",
    answers="annotations for the pod; those of all plugins are part of one binding",
)
POST_BIND: Final = ExtensionPoint(
    name="PostBind",
    protocol=cycle_points.PostBindPlugin,
    enabled_at=Point.POST_BIND,
    timed={"post_bind": "PostBind"},
    asked="when the log has stored the placement",
    answers="waiting pods to attempt because of the placement",
)

# --- beside the cycle, wherever the plugin runs ----------------------------------------------------------------------

CONCERNS: Final = ExtensionPoint(
    name="Concerns",
    protocol=node_points.ConcernedPlugin,
    asked="once for all pods with equal spec, namespace, labels, annotations and owners",
    answers="whether the plugin concerns the pod; if not, none of its methods is called for the pod",
)
READ_POD: Final = ExtensionPoint(
    name="ReadPod",
    protocol=node_points.PodReader,
    asked="as `Concerns`",
    answers="all that it reads of a pod besides resources, selectors and tolerations; see `PodClass.aspects[name]`",
)
READ_SHAPE: Final = ExtensionPoint(
    name="ReadShape",
    protocol=node_points.ShapeReader,
    asked="as `ReadPod`, if a filter or score with `Reads.SHAPE` uses the value",
    answers="as `ReadPod`",
)
QUEUEING_HINTS: Final = ExtensionPoint(
    name="QueueingHints",
    protocol=fact_points.QueueingHintsPlugin,
    asked="when an event may help a group of pods that the plugin rejected; called for the first pod",
    answers="whether the pod is attempted; without this point, every event on a node wakes it",
)
FOLLOW_NODES: Final = ExtensionPoint(
    name="FollowNodes",
    protocol=fact_points.NodeFollower,
    asked="when a node comes, changes or goes",
    answers="nothing; it keeps its own arrays with the same rows",
)
SETTLE: Final = ExtensionPoint(
    name="Settle",
    protocol=fact_points.SettlingPlugin,
    asked="after changes, before nodes are filtered",
    answers="nothing; it records the rows whose results have changed",
)
FOLLOW_PODS: Final = ExtensionPoint(
    name="FollowPods",
    protocol=fact_points.PodFollower,
    asked="when a pod counts on a node or leaves it, also on trial in a preemption",
    answers="nothing; it keeps sums over the pods of a node",
)
FOLD: Final = ExtensionPoint(
    name="Fold",
    protocol=fact_points.FoldingPlugin,
    asked="for each event of its `kinds`, in the order of the log",
    answers="whether the event may help waiting pods; `facts` and `restore` save and load its state",
)
OBSERVE: Final = ExtensionPoint(
    name="Observe",
    protocol=fact_points.ObservingPlugin,
    asked="when a node's agent has reported",
    answers="whether the report may help waiting pods on that node",
)
CLOCK: Final = ExtensionPoint(
    name="Clock",
    protocol=fact_points.ClockPlugin,
    asked="before each cycle",
    answers="nothing; it discards state that is too old",
)
BEFORE_FAILURE: Final = ExtensionPoint(
    name="BeforeFailure",
    protocol=lifecycle_hooks.BeforeFailurePlugin,
    asked="before the scheduler's own handling of a failed attempt",
    answers="whether the plugin has handled the failure; then no explanation is published",
)
AFTER_FAILURE: Final = ExtensionPoint(
    name="AfterFailure",
    protocol=lifecycle_hooks.AfterFailurePlugin,
    asked="after a failed attempt was handled",
    answers="nothing",
)
CONTROLLER: Final = ExtensionPoint(
    name="Controller",
    protocol=lifecycle_hooks.ControllerPlugin,
    asked="at the time of `control_due` on the leader, if `--controller-plugins` names the plugin",
    answers="pods to evict; statuses to publish",
)
PAGES: Final = ExtensionPoint(
    name="Pages",
    protocol=lifecycle_hooks.PagesPlugin,
    asked="for requests below `/apis/v1/plugins/<name>/`, on the leader",
    answers="paths, and functions that return their responses",
)

EXTENSION_POINTS: Final[tuple[ExtensionPoint[Any], ...]] = tuple(
    cast("ExtensionPoint[Any]", each) for each in list(globals().values()) if isinstance(each, ExtensionPoint)
)
"""The table: every extension point above, in this order."""
