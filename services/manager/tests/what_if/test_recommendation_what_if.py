"""Recorded recommendations made again from the log's samples: the same settings give the same, others their formula."""

import pytest
from koord_manager.domain.controllers.recommender.book import RecommenderBook
from koord_manager.domain.controllers.recommender.controller import RecommenderController
from koord_manager.domain.controllers.recommender.settings import DEFAULT_SETTINGS, read_settings, settings_from
from koord_manager.domain.what_if import run
from koord_manager.domain.what_if.recommendations import RecommendationDecisions
from koord_manager.settings import ManagerSettings, recommender_settings
from koordcore.service.settings import InvalidSettings
from koordcore.state.aggregates import RecommendationState
from koordcore.values.invalid import InvalidInput
from support.manager.loops import CONFIG, NODE, running
from support.manager.recommender_story import MINUTE, Story, half_an_hour, pod_of, selecting

LOW = read_settings("targetCPUPercentile=0.2,lowerBoundPercentile=0.1")


def amounts(decided: RecommendationDecisions, id_: str = "shop=web") -> tuple[int, int]:
    [container] = decided.rerun[id_].containers
    return container.target.cpu_milli, container.samples


async def test_every_recommendation_is_repeated_from_any_beginning() -> None:
    story = await half_an_hour()
    types = [stored.type for stored in story.events()]
    assert types.count("RecommendationComputed") > 10
    assert types.count("RecommendationDropped") == 1
    for begin in range(len(story.events()) + 1):
        what_if = await story.again(begin)
        tally = what_if.recommendations.tally
        assert (tally.recorded, tally.not_retained) == (tally.same, 0), begin
        assert what_if.recommendation_fates() == []
        assert what_if.nodes.fates() == []


async def test_other_settings_give_what_their_formula_says_on_the_same_samples() -> None:
    story = await half_an_hour()
    recorded = (await story.again()).recommendations
    wider = (await story.again(settings=read_settings("safetyMarginFraction=0.3"))).recommendations
    [before], [after] = recorded.rerun["shop=web"].containers, wider.rerun["shop=web"].containers
    assert after.percentiles == before.percentiles
    assert after.uncapped_target.cpu_milli == int(int(after.percentiles["target"].cpu_cores * 1000) * 1.3)
    assert (after.target.cpu_milli, before.target.cpu_milli) == (700, 700), "within the object's own policy"
    assert after.samples == before.samples

    low = await story.again(settings=LOW)
    [fate] = low.recommendation_fates()
    assert fate.id == "shop=web"
    assert amounts(low.recommendations)[0] < 700


async def test_what_is_tried_is_decided_also_where_the_window_has_no_decision() -> None:
    story = await half_an_hour()
    what_if = await story.again(len(story.events()), settings=LOW)
    assert what_if.recommendations.tally.recorded == 0
    assert [fate.id for fate in what_if.recommendation_fates()] == ["shop=web"]


async def test_samples_that_are_gone_are_known_from_a_checkpoint_or_not_at_all() -> None:
    story = await half_an_hour()
    gone = 12
    without = await story.again(forgotten=gone)
    assert without.recommendations.tally.explained
    assert without.recommendations.tally.not_retained == without.recommendations.tally.recorded - 1, (
        "all but one that went"
    )
    assert without.recommendation_fates() == []
    tried = await story.again(forgotten=gone, settings=LOW)
    assert tried.recommendation_fates() == [], "what is not known is not told"

    checkpoint = await story.checkpoint()
    with_it = await story.again(forgotten=gone, checkpoint=checkpoint)
    tally = with_it.recommendations.tally
    assert tally.explained
    assert 0 < tally.not_retained < tally.recorded - 1
    assert with_it.recommendation_fates() == []
    tried = await story.again(forgotten=gone, checkpoint=checkpoint, settings=LOW)
    everything = await story.again(settings=LOW)
    assert amounts(tried.recommendations) == amounts(everything.recommendations)


async def test_settings_that_samples_are_learned_by_use_the_reports_that_are_kept() -> None:
    story = await half_an_hour()
    checkpoint = await story.checkpoint()
    recorded = amounts((await story.again()).recommendations)
    for half_life, percentile in ((86400, 0), (60, 1)):
        settings = read_settings(f"cpuHalfLifeSeconds={half_life},memoryHalfLifeSeconds=3600")
        found = (await story.again(settings=settings, checkpoint=checkpoint)).recommendations
        assert amounts(found)[1] == recorded[1]
        assert (amounts(found)[0] < recorded[0]) == bool(percentile), "what was used last counts more"
    few = await story.again(settings=settings, forgotten=20)
    assert amounts(few.recommendations)[1] == 8


async def test_the_log_tells_by_which_settings_was_recommended() -> None:
    for text in ("safetyMarginFraction=0.4,targetCPUPercentile=0.8", "cpuHalfLifeSeconds=600"):
        settings = read_settings(text)
        story = await half_an_hour(settings)
        for begin in (0, 20, len(story.events())):
            what_if = await story.again(begin, first=settings)
            tally = what_if.recommendations.tally
            assert (tally.recorded, tally.not_retained, what_if.recommendation_fates()) == (tally.same, 0, [])
        assert what_if.recommendations.in_force == settings
        checkpoint = await story.checkpoint()
        known = (await story.again(forgotten=12, checkpoint=checkpoint)).recommendations.tally
        assert known.explained
        assert known.not_retained < known.recorded - 1
        back = await story.again(settings=DEFAULT_SETTINGS, first=settings)
        assert back.recommendations.settings == DEFAULT_SETTINGS
        same_bucket = "HalfLife" in text
        assert [fate.id for fate in back.recommendation_fates()] == ([] if same_bucket else ["shop=web"])


async def test_settings_that_change_with_a_restart_explain_what_each_has_recommended() -> None:
    story = await half_an_hour()
    async with running(story.manager):
        before = story.manager.policies.recommender.book
        book = RecommenderBook(read_settings("safetyMarginFraction=0.4"))
        book.restore(before.checkpoint())
        story.manager.policies.recommender = RecommenderController(book)
        await story.live(5, 100)
    for begin in range(0, len(story.events()), 7):
        what_if = await story.again(begin)
        tally = what_if.recommendations.tally
        assert (tally.recorded, tally.not_retained, what_if.recommendation_fates()) == (tally.same, 0, [])


async def test_pods_are_created_anew_for_what_is_recommended() -> None:
    story = Story()
    async with running(story.manager):
        mode = "analysis.koordinator.sh/update-mode: Recreate"
        await story.apply(CONFIG, NODE, *(pod_of(f"web-{number}", "web", "600m") for number in range(10)))
        await story.apply(selecting("web", "web", mode))
        await story.place()
        await story.live(150, 400, every=10 * MINUTE)
    asked = [stored for stored in story.events() if stored.type == "PodEvictionRequested"]
    assert asked
    for begin in (0, asked[0].based_on, asked[0].seq - 1, asked[-1].seq):
        what_if = await story.again(begin)
        assert what_if.recommendations.tally.explained
        assert what_if.recommendations.tally.not_retained == 0
        assert what_if.recommendation_fates() == []
    # 400 milli-cores end in a bucket whose end is some more; with half as much again the pods ask for what they need
    fits = await story.again(settings=read_settings("safetyMarginFraction=0.45"))
    [fate] = fits.recommendation_fates()
    assert fate.outdated[0] > 0
    assert fits.recommendations.tally.same < fits.recommendations.tally.recorded
    assert isinstance(fate.rerun, RecommendationState)
    [container] = fate.rerun.containers
    assert abs(container.target.cpu_milli - 600) < 60


async def test_no_more_than_the_next_facts_are_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    story = await half_an_hour()
    monkeypatch.setattr(run, "LOOKAHEAD", 8)
    what_if = await story.again()
    assert what_if.recommendations.tally == (await story.again()).recommendations.tally
    assert what_if.recommendations.tally.explained
    assert what_if.nodes.tally.explained


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("targetCPUPercentile=1.1", "targetCPUPercentile"),
        ("targetCPUPercentile=0.4", "targetCPUPercentile"),
        ("cpuHalfLifeSeconds=0", "cpuHalfLifeSeconds"),
        ("safetyMarginFraction=nan", "safetyMarginFraction"),
        ("oomBumpUpRatio=much", "oomBumpUpRatio"),
        ("margin=1", ""),
        ("safetyMarginFraction", "safetyMarginFraction"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_with_its_name(text: str, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_settings(text)
    assert refused.value.path == field


def test_the_manager_takes_the_same_settings_as_the_re_run() -> None:
    text = "targetCPUPercentile=0.8,safetyMarginFraction=0.4"
    told = ManagerSettings.load(["--recommender-settings", text], {})
    assert recommender_settings(told) == read_settings(text) == settings_from(read_settings(text).changed)
    assert recommender_settings(ManagerSettings.load([], {})) == DEFAULT_SETTINGS
    assert DEFAULT_SETTINGS.changed == {}
    with pytest.raises(InvalidSettings, match="targetCPUPercentile"):
        ManagerSettings.load(["--recommender-settings", "targetCPUPercentile=2"], {})


def test_settings_are_read_by_their_names() -> None:
    assert read_settings(" ") == DEFAULT_SETTINGS
    read = read_settings("podMinCPUMillicores=10, podMinMemoryMb=100,oomBumpUpRatio=1.5")
    assert (read.pod_min_cpu_millicores, read.pod_min_memory_mb, read.oom_bump_up_ratio) == (10, 100, 1.5)
    assert read.learning != DEFAULT_SETTINGS.learning
    assert read_settings("podMinMemoryMb=100").learning == DEFAULT_SETTINGS.learning
