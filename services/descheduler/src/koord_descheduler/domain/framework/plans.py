"""Plans: pods that move all together or not at all, to make room for waiting pods."""

from dataclasses import dataclass

from koordcore.events.descheduling import Inputs, plan_inputs

from koord_descheduler.domain.view.pods import PodView


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    """Pods that leave their nodes, all or none of them, so that a waiting gang finds room.

    Attributes:
        id: Id of the plan, a uuid.
        gang: The gang as "namespace/name"; the pod if a single pod waits.
        members: The waiting pods.
        pods: The pods that move, in the order in which they are placed.
        nodes: Nodes on which room is made. No moved pod may land there.
        gpus: Number of whole GPUs that the members need together.
        fragment_before: GPU milli of all nodes that typical pods cannot use, before the plan.
        fragment_after: GPU milli that typical pods cannot use after the plan, with the members placed.
    """

    id: str
    gang: str
    members: tuple[PodView, ...]
    pods: tuple[PodView, ...]
    nodes: frozenset[str]
    gpus: int
    fragment_before: float
    fragment_after: float

    @property
    def inputs(self) -> Inputs:
        """Return the numbers of the plan: its GPUs and moves, and the fragments after and before it."""
        return plan_inputs(
            gpus=self.gpus,
            moves=len(self.pods),
            fragment_before=self.fragment_before,
            fragment_after=self.fragment_after,
        )

    @property
    def reason(self) -> str:
        """Return why the pods move, as a sentence."""
        return (
            f"make room for {self.gang}, which waits for {self.gpus} whole GPUs: {len(self.pods)} pods move,"
            f" fragments {self.fragment_before / 1000:.1f} -> {self.fragment_after / 1000:.1f} GPUs"
        )
