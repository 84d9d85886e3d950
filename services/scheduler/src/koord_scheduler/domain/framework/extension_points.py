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
    topology_points,
    transforming,
)
from koord_scheduler.domain.framework.extension_point import ExtensionPoint
from koord_scheduler.domain.framework.points import Point

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
    asked="before the queue; one plugin in all profiles",
    answers="a pod past the queue's order; waiting pods that lose their nodes",
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
    answers="a copy that stands for the pod in this cycle; `Rejection`; `None`",
)
PRE_FILTER: Final = ExtensionPoint(
    name="PreFilter",
    protocol=cycle_points.PreFilterPlugin,
    enabled_at=Point.PRE_FILTER,
    timed={"pre_filter": "PreFilter"},
    asked="once an attempt, before any node",
    answers="`Rejection` (with whether preemption may help); `Candidates`; `None`",
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
    answers="as `pre_filter`; `offers.slots(pods)` tries a whole job on all nodes",
)
BEFORE_FILTER: Final = ExtensionPoint(
    name="BeforeFilter",
    protocol=transforming.BeforeFilterPlugin,
    enabled_at=Point.FILTER,
    timed={"before_filter": "BeforeFilter"},
    asked="before any filter of an attempt",
    answers="`Views`: which rows see which copy of the pod, and how a node is seen; `Rejection`; `None`",
)
FILTER: Final = ExtensionPoint(
    name="Filter",
    protocol=node_points.FilterPlugin,
    enabled_at=Point.FILTER,
    asked="for rows that may have changed since it answered last",
    answers="a code for each row, 0 passes; `reasons` and `unresolvable` explain them",
)
ROW_FILTER: Final = ExtensionPoint(
    name="RowFilter",
    protocol=node_points.RowFilterPlugin,
    enabled_at=Point.FILTER,
    asked="for one row, where a filter that reads load changes with each placement",
    answers="a function from a row to its code, for one pod equivalence class",
)
TOLERATION_FILTER: Final = ExtensionPoint(
    name="TolerationFilter",
    protocol=node_points.TolerationFilterPlugin,
    enabled_at=Point.FILTER,
    asked="as `Filter`; declares that answers depend on tolerations only",
    answers="as `Filter`",
)
NODE_SELECTOR_FILTER: Final = ExtensionPoint(
    name="NodeSelectorFilter",
    protocol=node_points.NodeSelectorFilterPlugin,
    enabled_at=Point.FILTER,
    asked="as `Filter`; declares that every node outside the pod's selector is refused",
    answers="as `Filter`",
)
AMOUNTS_FILTER: Final = ExtensionPoint(
    name="AmountsFilter",
    protocol=node_points.AmountsFilterPlugin,
    enabled_at=Point.FILTER,
    asked="where sums replace trials",
    answers="the columns and amounts that are compared",
)
CROSS_NODE_FILTER: Final = ExtensionPoint(
    name="CrossNodeFilter",
    protocol=cross_node_points.CrossNodeFilterPlugin,
    enabled_at=Point.FILTER,
    asked="once per kind of pod and `version()`",
    answers="a filter of rows by what runs elsewhere; `None`: nothing concerns the pod",
)
TOPOLOGY_HINTS: Final = ExtensionPoint(
    name="TopologyHints",
    protocol=topology_points.TopologyHintsPlugin,
    enabled_at=Point.FILTER,
    asked="for one node, where pod or node has a topology policy, about pods that ask for the plugin's resources",
    answers="the NUMA zones that can satisfy the pod; whether it fits inside the zones that were chosen",
)
TOPOLOGY_MANAGER: Final = ExtensionPoint(
    name="TopologyManager",
    protocol=topology_points.TopologyManagerPlugin,
    enabled_at=Point.FILTER,
    asked="once, when the profile is made",
    answers="nothing; it merges the hints of these plugins from then on",
)
POST_FILTER: Final = ExtensionPoint(
    name="PostFilter",
    protocol=post_filter.PostFilterPlugin,
    enabled_at=Point.POST_FILTER,
    timed={"post_filter": "PostFilter"},
    asked="when no node suits, until one plugin finds a node",
    answers="`search.on_one_node(rules)` or `search.for_job(rules)`: who has to leave; `None`",
)
AFTER_POST_FILTER: Final = ExtensionPoint(
    name="AfterPostFilter",
    protocol=cycle_points.AfterPostFilterPlugin,
    enabled_at=Point.POST_FILTER,
    timed={"after_post_filter": "AfterPostFilter"},
    asked="after every failed attempt",
    answers="what that means for others (a gang)",
)
BEFORE_SCORE: Final = ExtensionPoint(
    name="BeforeScore",
    protocol=transforming.BeforeScorePlugin,
    enabled_at=Point.SCORE,
    timed={"before_score": "BeforeScore"},
    asked="when two or more nodes are feasible and none is preferred",
    answers="`Scored`: which of them are scored, for which copy of the pod; `Rejection`; `None`",
)
SCORE: Final = ExtensionPoint(
    name="Score",
    protocol=node_points.ScorePlugin,
    enabled_at=Point.SCORE,
    asked="as `Filter`",
    answers="a raw score for each row; `normalize` turns it into 0..100, times the weight",
)
ROW_SCORE: Final = ExtensionPoint(
    name="RowScore",
    protocol=node_points.RowScorePlugin,
    enabled_at=Point.SCORE,
    asked="as `RowFilter`",
    answers="a function from a row to its raw score",
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
    asked="when a node is chosen, and when it is taken back",
    answers="`Allocation`, part of the placement; `Rejection`; from `unreserve` pods that lose their nodes with it",
)
PERMIT: Final = ExtensionPoint(
    name="Permit",
    protocol=cycle_points.PermitPlugin,
    enabled_at=Point.PERMIT,
    timed={"permit": "Permit"},
    asked="when the pod has its node",
    answers="`Rejection`; `Wait(seconds)`; `Allow(waiting=...)`: those go in the same append",
)
PRE_BIND: Final = ExtensionPoint(
    name="PreBind",
    protocol=lifecycle_hooks.PreBindPlugin,
    enabled_at=Point.PRE_BIND,
    timed={"pre_bind": "PreBind"},
    asked="when the pod may go to its node",
    answers="annotations; what all plugins write goes into the placement, and with it into one binding",
)
POST_BIND: Final = ExtensionPoint(
    name="PostBind",
    protocol=cycle_points.PostBindPlugin,
    enabled_at=Point.POST_BIND,
    timed={"post_bind": "PostBind"},
    asked="when the log has stored the placement",
    answers="pods that are worth an attempt because of it",
)

# --- beside the cycle, wherever the plugin runs ----------------------------------------------------------------------

CONCERNS: Final = ExtensionPoint(
    name="Concerns",
    protocol=node_points.ConcernedPlugin,
    asked="once for all pods that agree in spec, namespace, labels, annotations and owners",
    answers="whether the plugin concerns the pod; for others none of its points is called",
)
READ_POD: Final = ExtensionPoint(
    name="ReadPod",
    protocol=node_points.PodReader,
    asked="as `Concerns`",
    answers="all that it reads of a pod beyond resources, selectors and tolerations; see `template.aspects[name]`",
)
READ_SHAPE: Final = ExtensionPoint(
    name="ReadShape",
    protocol=node_points.ShapeReader,
    asked="as `ReadPod`; declares that answers which read the shape of nodes depend on it",
    answers="as `ReadPod`",
)
QUEUEING_HINTS: Final = ExtensionPoint(
    name="QueueingHints",
    protocol=fact_points.QueueingHintsPlugin,
    asked="when something happens that may help the first of a group of pods that the plugin refused",
    answers="whether an attempt is worth while; without this point every event on a node is",
)
FOLLOW_NODES: Final = ExtensionPoint(
    name="FollowNodes",
    protocol=fact_points.NodeFollower,
    asked="when a node comes, changes or goes",
    answers="nothing; it keeps columns of its own, aligned with the rows",
)
SETTLE: Final = ExtensionPoint(
    name="Settle",
    protocol=fact_points.SettlingPlugin,
    asked="after changes, before nodes are filtered",
    answers="nothing; it records the rows whose answers have changed",
)
FOLLOW_PODS: Final = ExtensionPoint(
    name="FollowPods",
    protocol=fact_points.PodFollower,
    asked="when a pod counts on a node or leaves it, trials of preemption included",
    answers="nothing; it keeps sums over the pods of a node",
)
FOLD: Final = ExtensionPoint(
    name="Fold",
    protocol=fact_points.FoldingPlugin,
    asked="for each event of its `kinds`, in the order of the log",
    answers="whether waiting pods may have better luck; `facts` and `restore` for snapshots",
)
OBSERVE: Final = ExtensionPoint(
    name="Observe",
    protocol=fact_points.ObservingPlugin,
    asked="when a node's agent has reported",
    answers="whether waiting pods may have better luck on that node",
)
CLOCK: Final = ExtensionPoint(
    name="Clock",
    protocol=fact_points.ClockPlugin,
    asked="before each cycle",
    answers="nothing; it lets expire what is too old",
)
BEFORE_FAILURE: Final = ExtensionPoint(
    name="BeforeFailure",
    protocol=lifecycle_hooks.BeforeFailurePlugin,
    asked="before the scheduler's own handling of a failed attempt",
    answers="whether the plugin handles the failure; then there is no explanation",
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
    asked="from time to time on the leader, if `--controller-plugins` names the plugin",
    answers="pods that are to leave their nodes; statuses that are to be published",
)
PAGES: Final = ExtensionPoint(
    name="Pages",
    protocol=lifecycle_hooks.PagesPlugin,
    asked="for requests below `/apis/v1/plugins/<name>/`, on the leader",
    answers="paths, and who answers them",
)

EXTENSION_POINTS: Final[tuple[ExtensionPoint[Any], ...]] = tuple(
    cast("ExtensionPoint[Any]", each) for each in list(globals().values()) if isinstance(each, ExtensionPoint)
)
"""The table: every extension point above, in this order."""
