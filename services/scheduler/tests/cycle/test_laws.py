"""Laws of every decision, over stories with all that plugins read: load, quotas, gangs, constraints, nominations."""

from hypothesis import event, given, settings
from hypothesis import strategies as st
from koord_scheduler.domain.loop.commit.work import Placement
from koordcore.events import CATALOGUE
from koordcore.events.explanations import PodUnschedulable
from koordcore.events.pod import PlacementExplanation, PodPlaced
from support.depth import examples
from support.scheduler.scheduling import Scheduler
from support.scheduler.stories import adds_up, play

SEEDS = st.integers(0, 1 << 32)


class Watched(Scheduler):
    """Looks at the node of each decision before anything else happens."""

    def decide(self, now: float = 0.0) -> object:
        decided = super().decide(now)
        if isinstance(decided, Placement):
            nodes, pod = self.state.nodes, self.state.pods[decided.uid]
            row = nodes.row(decided.node)
            assert row is not None
            assert pod.subject is not None
            assert pod.subject.profile == "koord-scheduler"
            for column, amount in pod.subject.pod_class.demand.pairs:
                assert nodes.free[column, row] >= 0, (decided.uid, decided.node, nodes.resources[column], amount)
        return decided


@settings(max_examples=examples(40))
@given(SEEDS)
def test_no_decision_takes_more_of_a_node_than_it_has_in_any_dimension(seed: int) -> None:
    world = play(seed, kind=Watched)
    event(f"placements: {min(20, sum(stored.type == 'PodPlaced' for stored in world.log.events)) // 5 * 5}+")


@settings(max_examples=examples(40))
@given(SEEDS)
def test_explanations_add_up_to_the_nodes_considered(seed: int) -> None:
    world = play(seed)
    told = [body.explanation for stored in world.log.events if isinstance(body := CATALOGUE.read(stored), PodPlaced)]
    explanations = [each.event for each in world.scheduler.explanations]
    refused = [explanation.explanation for explanation in explanations if isinstance(explanation, PodUnschedulable)]
    for explanation in (*told, *refused):
        assert adds_up(explanation), explanation
    event(f"with coupled plugins: {any(coupled(each) for each in (*told, *refused))}")


def coupled(explanation: PlacementExplanation) -> bool:
    return any(each.plugin in ("PodTopologySpread", "InterPodAffinity") for each in explanation.exclusions)
