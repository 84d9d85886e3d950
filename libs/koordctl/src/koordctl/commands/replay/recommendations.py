"""The lines of `koord replay --rerun-manager` about recommendations."""

from collections.abc import Iterator

from koord_manager.domain.controllers.recommender.settings import RecommenderSettings
from koordcore.events.recommendation import ContainerRecommendation

from koordctl.render.bounds import bound_texts
from koordctl.render.output import console, show_table
from koordctl.render.units import cores, gibibytes
from koordctl.what_if import recommendations

_MOST_NAMED = 20
_MIB = 1 << 20


def show_recommendations(found: recommendations.RecommendationComparison) -> None:
    """Print how many recommendations the re-run made, which differ, and how the first differing one was computed."""
    tally = found.tally
    if not tally.recorded and not found.fates:
        return
    console.print(
        f"{tally.recorded:,} decisions of the recommender recorded, {tally.rerun:,} in the re-run,"
        f" {tally.same:,} with the recorded result",
        highlight=False,
    )
    if tally.not_retained:
        console.print(
            f"{tally.not_retained:,} of them were not repeated: their samples are no longer retained",
            highlight=False,
        )
    fates = found.fates
    if not fates:
        return
    show_table(
        ["what differs", "recommendations"],
        [
            ["requests", sum(map(recommendations.requests_differ, fates))],
            ["bounds", sum(map(recommendations.bounds_differ, fates))],
            ["conditions", sum(map(recommendations.conditions_differ, fates))],
            ["pods to re-create", sum(fate.outdated[0] != fate.outdated[1] for fate in fates)],
        ],
    )
    differing = [(recommendations.title(fate), one) for fate in fates for one in recommendations.container_fates(fate)]
    if differing:
        columns = ["recommendation", "container", "", "cpu", "memory", "lower bound", "upper bound", "samples"]
        rows = [row for name, one in differing[:_MOST_NAMED] for row in _rows(name, one)]
        show_table(columns, rows)
        name, first = differing[0]
        console.print(f"{name}, container {first.name}:", highlight=False)
        for line in _terms(first, found.in_force, found.settings):
            console.print(f"  {line}", highlight=False)
    if len(differing) > _MOST_NAMED:
        console.print(f"and {len(differing) - _MOST_NAMED:,} more: -o json", highlight=False)
    outdated = [(recommendations.title(fate), *fate.outdated) for fate in fates if fate.outdated[0] != fate.outdated[1]]
    if outdated:
        show_table(["pods to re-create", "recorded", "re-run"], outdated[:_MOST_NAMED])


def _rows(name: str, fate: recommendations.ContainerFate) -> Iterator[list[str]]:
    for head, when, container in (((name, fate.name), "recorded", fate.recorded), (("", ""), "re-run", fate.rerun)):
        if container is None:
            yield [*head, when, "-", "-", "-", "-", "-"]
            continue
        yield [
            *head,
            when,
            cores(container.target.cpu_milli),
            gibibytes(container.target.memory_bytes),
            ", ".join(bound_texts(container.lower_bound)),
            ", ".join(bound_texts(container.upper_bound)),
            f"{container.samples:,}",
        ]


def _terms(
    fate: recommendations.ContainerFate, recorded: RecommenderSettings, rerun: RecommenderSettings
) -> Iterator[str]:
    for when, container, decided in (("recorded", fate.recorded, recorded), ("re-run", fate.rerun, rerun)):
        if container is not None:
            yield from (f"{when}: {line}" for line in _formula(container, decided))


def _formula(container: ContainerRecommendation, settings: RecommenderSettings) -> Iterator[str]:
    """Yield the lines that show how a request was computed: percentile plus margin, with its lower and upper limits."""
    found, margin = container.percentiles.get("target"), f"{100 * settings.safety_margin_fraction:g} %"
    if found is None:
        return
    for resource, request, uncapped, percentile, amount, least in (
        (
            "cpu",
            cores(container.target.cpu_milli),
            cores(container.uncapped_target.cpu_milli),
            settings.target_cpu_percentile,
            f"{found.cpu_cores:.3f}",
            cores(int(settings.pod_min_cpu_millicores)),
        ),
        (
            "memory",
            gibibytes(container.target.memory_bytes),
            gibibytes(container.uncapped_target.memory_bytes),
            settings.target_memory_percentile,
            gibibytes(int(found.memory_bytes)),
            gibibytes(int(settings.pod_min_memory_mb * _MIB)),
        ),
    ):
        caps = f"; {uncapped} before the policy's caps" if uncapped != request else ""
        yield (
            f"{resource} {request} = {amount} ({100 * percentile:g} % of the samples are below) + {margin};"
            f" at least its share of {least} per pod{caps}"
        )
