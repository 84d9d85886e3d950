"""One decision: the best node for a pod, or why there is none. Pure: columns in, decision out, nothing remembered."""

from typing import Final

from koordcore.events.envelope import BasedOn
from koordcore.events.explanation import NodeScore, PlacementExplanation

from koord_scheduler.domain.columns import NodeColumns, text_hash
from koord_scheduler.domain.decision import Decision, Placed, Unschedulable, fit_error
from koord_scheduler.domain.profile import Profile
from koord_scheduler.domain.templates import PodTemplate
from koord_scheduler.domain.views import Views

TOP_SCORES: Final = 3


class Engine:
    """The plugins of one profile over the columns of one cluster."""

    def __init__(self, nodes: NodeColumns, profile: Profile) -> None:
        self.nodes = nodes
        self.profile = profile
        self.views = Views(nodes, profile)
        self.policy_version = profile.policy_version()

    def decide(self, pod: PodTemplate, uid: str, based_on: BasedOn) -> Decision:
        """The feasible node with the best total score; among equals the one that a hash of uid and node name picks.

        uid       of the pod: the seed of the choice among equals, so that a replay chooses the same node
        source    scheduler-core spec, 1 (steps 6 to 9), 1.2, 13
        """
        view = self.views.of(pod)
        best = view.best(TOP_SCORES, text_hash(uid)) if view.feasible else []
        names, totals = self.nodes.names, view.totals
        top = [
            NodeScore(names[row], int(totals[row]), part)
            for row, part in zip(best, view.parts(best) if best else (), strict=True)
        ]
        explanation = PlacementExplanation(
            nodes_considered=len(self.nodes),
            nodes_feasible=view.feasible,
            exclusions=view.exclusions(),
            top=top,
            policy_version=self.policy_version,
            based_on=based_on,
        )
        if not best:
            return Unschedulable(message=fit_error(explanation), explanation=explanation)
        return Placed(node=names[best[0]], row=best[0], explanation=explanation)
