"""The explanation of a scheduling decision, as values carried by placement events and by explanations of attempts.

Counts add up: feasible + sum of excluded = considered. The code that decided fills them; nothing is reconstructed.

Source:
    scheduler-core spec, 1.4 and 13
"""

import msgspec

from koordcore.events.envelope import BasedOn


class PluginExclusion(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How many nodes one plugin excluded (each node counts for the first plugin that refused it), and why.

    Attributes:
        reasons: Reason text -> number of nodes, e.g. {"Insufficient cpu": 12}.
    """

    plugin: str
    excluded: int
    reasons: dict[str, int]


class NodeScore(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A feasible node with its total score and the parts it is made of (plugin -> weighted score)."""

    node: str
    total: int
    parts: dict[str, int]


class PlacementExplanation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Why this node, or why none.

    Attributes:
        nodes_considered: Nodes that were examined: all, but where a profile samples.
        nodes_unexamined: The others.
        nodes_feasible: Those that passed every filter.
        exclusions: In the order of the filters.
        top: Best feasible nodes, best first.
        policy_version: Digest of the scheduler's effective configuration.
        based_on: Positions folded when the decision was made.
    """

    nodes_considered: int
    nodes_feasible: int
    nodes_unexamined: int = 0
    exclusions: list[PluginExclusion] = []
    top: list[NodeScore] = []
    policy_version: str
    based_on: BasedOn
