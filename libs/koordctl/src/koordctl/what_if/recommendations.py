"""What-if runs of the recommender: recorded recommendations compared with recommendations under other settings."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from koord_manager.domain.controllers.recommender.settings import RecommenderSettings
from koord_manager.domain.what_if.recommendations import RecommendationFate
from koord_manager.domain.what_if.recording import Tally
from koord_manager.domain.what_if.run import ManagerWhatIf
from koordcore.events.envelope import namespaced_from_token
from koordcore.events.recommendation import ContainerRecommendation
from koordcore.state.aggregates import RecommendationState

from koordctl.what_if.nodes import tally_document


@dataclass(frozen=True, slots=True)
class ContainerFate:
    """The recorded and the re-run recommendation for one container; None means that there is none."""

    name: str
    recorded: ContainerRecommendation | None
    rerun: ContainerRecommendation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendationComparison:
    """The recorded recommendations compared with those of the re-run.

    Attributes:
        tally: Numbers of decisions in the window: recommendations, and evictions that follow from a recommendation.
        in_force: Recorded settings of the recommender at the end.
        settings: Settings of the re-run.
        fates: Recommendations that differ at the end, or that would have other pods re-created.
    """

    tally: Tally
    in_force: RecommenderSettings
    settings: RecommenderSettings
    fates: list[RecommendationFate]

    def document(self) -> dict[str, Any]:
        """Return the comparison as JSON values."""
        return {
            "decisions": tally_document(self.tally),
            "settings": {
                "recorded": msgspec.to_builtins(self.in_force),
                "rerun": msgspec.to_builtins(self.settings),
            },
            "differing": [_fate(fate) for fate in self.fates],
        }


def compare_recommendations(ended: ManagerWhatIf) -> RecommendationComparison:
    """Return the comparison of the recorded recommendations with those of a finished re-run."""
    decided = ended.recommendations
    return RecommendationComparison(
        tally=decided.tally, in_force=decided.in_force, settings=decided.settings, fates=ended.recommendation_fates()
    )


def title(fate: RecommendationFate) -> str:
    """Return namespace and name of the Recommendation as text of the form `namespace/name`."""
    return "/".join(namespaced_from_token(fate.id))


def container_fates(fate: RecommendationFate) -> Iterator[ContainerFate]:
    """Yield the containers whose recommendation differs, ordered by name."""
    before, after = _containers(fate.recorded), _containers(fate.rerun)
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield ContainerFate(name, before.get(name), after.get(name))


def requests_differ(fate: RecommendationFate) -> bool:
    """Return whether the recommended requests of a container differ between the recording and the re-run."""
    return any(
        (one.recorded and one.recorded.target) != (one.rerun and one.rerun.target) for one in container_fates(fate)
    )


def bounds_differ(fate: RecommendationFate) -> bool:
    """Return whether the recommended bounds of a container differ between the recording and the re-run.

    Pods with requests within the bounds are not re-created.
    """
    return any(
        (one.recorded and (one.recorded.lower_bound, one.recorded.upper_bound))
        != (one.rerun and (one.rerun.lower_bound, one.rerun.upper_bound))
        for one in container_fates(fate)
    )


def conditions_differ(fate: RecommendationFate) -> bool:
    """Return whether types or statuses of a Recommendation's conditions differ between the recording and the re-run."""
    return _conditions(fate.recorded) != _conditions(fate.rerun)


def _containers(state: RecommendationState | None) -> dict[str, ContainerRecommendation]:
    return {one.name: one for one in state.containers} if state is not None else {}


def _conditions(state: RecommendationState | None) -> dict[str, str]:
    return {one.type: one.status for one in state.conditions} if state is not None else {}


def _fate(fate: RecommendationFate) -> dict[str, Any]:
    return {
        "recommendation": title(fate),
        "recorded": msgspec.to_builtins(fate.recorded),
        "rerun": msgspec.to_builtins(fate.rerun),
        "outdatedPods": {"recorded": fate.outdated[0], "rerun": fate.outdated[1]},
    }
