"""`koord replay --rerun-manager` about recommendations: recorded ones, and those under other settings."""

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

from koordctl.recommend import amount_texts
from koordctl.render.output import console, show_table
from koordctl.render.units import cores, gibibytes
from koordctl.replay.nodes import tally_document

_MOST_NAMED = 20
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ContainerFate:
    """The recorded and the re-run recommendation for one container; None means that there is none."""

    name: str
    recorded: ContainerRecommendation | None
    rerun: ContainerRecommendation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendationComparison:
    tally: Tally  # Numbers of decisions in the window: recommendations, and evictions that follow from a recommendation
    in_force: RecommenderSettings  # Recorded settings of the recommender at the end
    settings: RecommenderSettings  # Settings of the re-run
    fates: list[RecommendationFate]  # Recommendations that differ at the end, or that would have other pods re-created

    def document(self) -> dict[str, Any]:
        return {
            "decisions": tally_document(self.tally),
            "settings": {
                "recorded": msgspec.to_builtins(self.in_force),
                "rerun": msgspec.to_builtins(self.settings),
            },
            "differing": [_fate(fate) for fate in self.fates],
        }


def compare_recommendations(ended: ManagerWhatIf) -> RecommendationComparison:
    decided = ended.recommendations
    return RecommendationComparison(
        tally=decided.tally, in_force=decided.in_force, settings=decided.settings, fates=ended.recommendation_fates()
    )


def title(fate: RecommendationFate) -> str:
    return "/".join(namespaced_from_token(fate.id))


def container_fates(fate: RecommendationFate) -> Iterator[ContainerFate]:
    """The containers whose recommendation differs, ordered by name."""
    before, after = _containers(fate.recorded), _containers(fate.rerun)
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield ContainerFate(name, before.get(name), after.get(name))


def requests_differ(fate: RecommendationFate) -> bool:
    """Whether the recommended requests of a container differ."""
    return any(
        (one.recorded and one.recorded.target) != (one.rerun and one.rerun.target) for one in container_fates(fate)
    )


def bounds_differ(fate: RecommendationFate) -> bool:
    """Whether the recommended bounds of a container differ. Pods with requests within the bounds are not re-created."""
    return any(
        (one.recorded and (one.recorded.lower_bound, one.recorded.upper_bound))
        != (one.rerun and (one.rerun.lower_bound, one.rerun.upper_bound))
        for one in container_fates(fate)
    )


def conditions_differ(fate: RecommendationFate) -> bool:
    """Whether types or statuses of a Recommendation's conditions differ."""
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


def show_recommendations(found: RecommendationComparison) -> None:
    """Print how many recommendations the re-run made, which differ, and how the first differing one was computed."""
    tally = found.tally
    if not tally.recorded and not found.fates:
        return
    console.print(
        f"{tally.recorded:,} decisions of the recommender recorded, {tally.rerun:,} in the re-run,"
        f" {tally.same:,} with the recorded result"
    )
    if tally.not_retained:
        console.print(f"{tally.not_retained:,} of them were not repeated: their samples are no longer retained")
    fates = found.fates
    if not fates:
        return
    show_table(
        ["what differs", "recommendations"],
        [
            ["requests", sum(map(requests_differ, fates))],
            ["bounds", sum(map(bounds_differ, fates))],
            ["conditions", sum(map(conditions_differ, fates))],
            ["pods to re-create", sum(fate.outdated[0] != fate.outdated[1] for fate in fates)],
        ],
    )
    differing = [(title(fate), one) for fate in fates for one in container_fates(fate)]
    if differing:
        columns = ["recommendation", "container", "", "cpu", "memory", "lower bound", "upper bound", "samples"]
        rows = [row for name, one in differing[:_MOST_NAMED] for row in _rows(name, one)]
        show_table(columns, rows)
        name, first = differing[0]
        console.print(f"{name}, container {first.name}:")
        for line in _terms(first, found.in_force, found.settings):
            console.print(f"  {line}")
    if len(differing) > _MOST_NAMED:
        console.print(f"and {len(differing) - _MOST_NAMED:,} more: -o json")
    outdated = [(title(fate), *fate.outdated) for fate in fates if fate.outdated[0] != fate.outdated[1]]
    if outdated:
        show_table(["pods to re-create", "recorded", "re-run"], outdated[:_MOST_NAMED])


def _rows(name: str, fate: ContainerFate) -> Iterator[list[str]]:
    for head, when, container in (((name, fate.name), "recorded", fate.recorded), (("", ""), "re-run", fate.rerun)):
        if container is None:
            yield [*head, when, "-", "-", "-", "-", "-"]
            continue
        yield [
            *head,
            when,
            *amount_texts(container.target),
            ", ".join(amount_texts(container.lower_bound)),
            ", ".join(amount_texts(container.upper_bound)),
            f"{container.samples:,}",
        ]


def _terms(fate: ContainerFate, recorded: RecommenderSettings, rerun: RecommenderSettings) -> Iterator[str]:
    for when, container, decided in (("recorded", fate.recorded, recorded), ("re-run", fate.rerun, rerun)):
        if container is not None:
            yield from (f"{when}: {line}" for line in _formula(container, decided))


def _formula(container: ContainerRecommendation, settings: RecommenderSettings) -> Iterator[str]:
    """How a request was computed: percentile plus margin, with its lower and upper limits."""
    found, margin = container.percentiles.get("target"), f"{100 * settings.safety_margin_fraction:g} %"
    if found is None:
        return
    requests, before_caps = amount_texts(container.target), amount_texts(container.uncapped_target)
    for resource, request, uncapped, percentile, amount, least in (
        (
            "cpu",
            requests[0],
            before_caps[0],
            settings.target_cpu_percentile,
            f"{found.cpu_cores:.3f}",
            cores(int(settings.pod_min_cpu_millicores)),
        ),
        (
            "memory",
            requests[1],
            before_caps[1],
            settings.target_memory_percentile,
            gibibytes(int(found.memory_bytes)),
            gibibytes(int(settings.pod_min_memory_mb * _MIB)),
        ),
    ):
        if request == "-":
            yield f"{resource} -: no samples"
            continue
        caps = f"; {uncapped} before the policy's caps" if uncapped != request else ""
        yield (
            f"{resource} {request} = {amount} ({100 * percentile:g} % of the samples are below) + {margin};"
            f" at least its share of {least} per pod{caps}"
        )
