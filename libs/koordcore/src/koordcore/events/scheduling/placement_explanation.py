"""The reason why a node, or no node, was chosen for a pod: a value in placement events and in explanations.

The counts add up: feasible + sum of excluded = considered. They are recorded during the decision.

Source:
    scheduler-core spec, 1.4 and 13
"""

import msgspec

from koordcore.events.envelope import BasedOn


class PluginExclusion(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Number of nodes that one plugin refused first, and its reasons.

    If several plugins refuse a node, it counts only for the first one in the order of the filters.

    Attributes:
        plugin: Name of the plugin.
        excluded: Number of these nodes.
        reasons: Reason text -> number of nodes, e.g. {"Insufficient cpu": 12}.
    """

    plugin: str
    excluded: int
    reasons: dict[str, int]


class NodeScore(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A feasible node with its score.

    Attributes:
        node: Name of the node.
        total: Sum of `parts`.
        parts: Plugin -> its score multiplied by its weight.
    """

    node: str
    total: int
    parts: dict[str, int]


class PlacementExplanation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Numbers that show why a node was chosen, or why no node was feasible.

    Attributes:
        nodes_considered: Number of examined nodes. These are all nodes unless the profile samples.
        nodes_feasible: Number of nodes that passed every filter.
        nodes_unexamined: Number of nodes that were not examined.
        exclusions: Refused nodes by plugin, in the order of the filters.
        top: Best feasible nodes, best first.
        policy_version: Digest of the scheduler's effective configuration.
        based_on: Last fact and observation that were folded when the decision was made.
    """

    nodes_considered: int
    nodes_feasible: int
    nodes_unexamined: int = 0
    exclusions: list[PluginExclusion] = []
    top: list[NodeScore] = []
    policy_version: str
    based_on: BasedOn
