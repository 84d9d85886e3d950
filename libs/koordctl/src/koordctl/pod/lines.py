"""The life of a pod as lines for a terminal: the output of `koord explain pod`. Pure.

No two lines of a decision have the same content. All times are those that the events carry, from the clocks of their
writers. Requests are in the units of kubectl, other amounts as in `koordctl.render.units`.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from koordcore.events.explanations import Diagnosis, PreemptionDiagnosis
from koordcore.events.pod import PlacementExplanation
from koordcore.stories.pending import amount_for
from koordcore.stories.pod import victims_text

from koordctl.pod.attempt import NODES_NAMED, attempt_lines
from koordctl.pod.story import PodStory, StoryEntry
from koordctl.render.console import Line
from koordctl.render.units import cores, duration_text, gibibytes, time_text

TOP: Final = 3
MOST_EVENTS: Final = 8
"""Largest number of events of a pending pod that are shown besides its attempts, unless all are wanted."""
VICTIMS_SUGGESTION: Final = "WaitingVictimReleased"
"""The suggestion to wait for the victims, which the preemption line already contains."""
_PREEMPTION_PART: Final = " preemption: "
STYLES: Final = {
    "placed": "green",
    "started": "green",
    "unschedulable": "yellow",
    "denied": "red",
    "abandoned": "red",
    "gated": "yellow",
    "evicted": "red",
    "oom-killed": "red",
}
REPEATED: Final = ("unschedulable", "denied", "gated", "abandoned")


def headline(message: str, diagnosis: Diagnosis | None) -> str:
    """The message of an explanation for the first line.

    The outcome of preemption is cut off if the diagnosis repeats it. What follows it, such as the number of
    Reservations that match, stays.
    """
    if diagnosis is None or diagnosis.preemption is None:
        return message
    reasons, _, rest = message.partition(_PREEMPTION_PART)
    failed = diagnosis.preemption.failed_message
    notes = rest.removeprefix(failed) if failed else ""
    return f"{reasons}{notes}"


def explanation_lines(
    found: PlacementExplanation, diagnosis: Diagnosis | None = None, *, with_nodes: bool = True
) -> list[str]:
    """The considered nodes: how many, why nodes were excluded, and the best scores.

    Args:
        diagnosis: Diagnosis of the same attempt. Its failures replace the exclusions, which say the same by node.
    """
    lines = [f"{found.nodes_considered} nodes considered, {found.nodes_feasible} feasible"]
    if diagnosis is not None:
        lines += diagnosis_lines(diagnosis, with_nodes=with_nodes)
    if diagnosis is None or not diagnosis.failures:
        for exclusion in found.exclusions:
            if exclusion.excluded:
                reasons = ", ".join(f"{count} {reason}" for reason, count in _most_first(exclusion.reasons))
                lines.append(f"{exclusion.plugin} excluded {exclusion.excluded}: {reasons}")
    for place, score in enumerate(found.top[:TOP], 1):
        parts = " + ".join(f"{plugin} {value}" for plugin, value in _most_first(score.parts) if value) or "0"
        lines.append(f"score {place}. {score.node} {score.total} = {parts}")
    return lines


def basis_line(found: PlacementExplanation) -> str:
    """The decision basis: positions of facts and reports, and the policy version."""
    facts, samples = found.based_on.ev, found.based_on.obs
    observed = f", observations up to {samples}" if samples else ""
    return f"based on facts up to {facts}{observed}, policy {found.policy_version}"


def diagnosis_lines(diagnosis: Diagnosis, *, with_nodes: bool = True) -> list[str]:
    """Why no node fits, whether preemption could help, and what the user can change."""
    lines: list[str] = []
    if diagnosis.pre_filter_message:
        lines.append(f"before filtering: {diagnosis.pre_filter_message}")
        lines += [f"  {detail}" for detail in diagnosis.pre_filter_details]
    for failure in diagnosis.failures:
        shown = ", ".join(failure.nodes[:NODES_NAMED])
        more = f" and {failure.count - NODES_NAMED} more" if failure.count > NODES_NAMED else ""
        helps = "removing pods may help" if failure.preempt_might_help else "removing pods does not help"
        named = f": {shown}{more}" if with_nodes else ""
        lines.append(f"{failure.count} x {failure.plugin}: {failure.reason} ({helps}){named}")
        lines += [f"  {detail}" for detail in failure.details] if with_nodes else []
    preemption = _preemption_lines(diagnosis.preemption) if diagnosis.preemption is not None else []
    return [*lines, *_gang_lines(diagnosis), *preemption, *_suggestion_lines(diagnosis)]


def _gang_lines(diagnosis: Diagnosis) -> list[str]:
    lines: list[str] = []
    if diagnosis.already_waiting:
        nodes = ", ".join(f"{node} {count}" for node, count in sorted(diagnosis.waiting_on.items()))
        lines.append(f"{diagnosis.already_waiting} pods of its gang group wait at Permit: {nodes}")
    if not diagnosis.is_root_cause:
        lines.append("it failed because its gang group had failed before")
    return lines


def _suggestion_lines(diagnosis: Diagnosis) -> list[str]:
    preemption, suggestion = diagnosis.preemption, diagnosis.suggestion
    displaces = preemption is not None and bool(preemption.victims)
    if suggestion is None or (displaces and suggestion.type == VICTIMS_SUGGESTION):
        return []
    return [f"suggestion: {suggestion.message} ({suggestion.type})"]


def _preemption_lines(preemption: PreemptionDiagnosis) -> list[str]:
    if preemption.victims:
        outcome = f"{preemption.node} is free after {victims_text(preemption.victims)} left"
        return [f"preemption: {outcome} ({preemption.plugin}, {preemption.examined} nodes tried)"]
    return [f"preemption: {preemption.failed_message}"] if preemption.failed_message else []


def _most_first(counts: dict[str, int]) -> Sequence[tuple[str, int]]:
    return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))


def pod_lines(story: PodStory, as_of: str = "", *, every: bool = False, with_nodes: bool = False) -> Iterator[Line]:
    """The output of `koord explain pod`. Unless all events are wanted, that of a pending pod fits on a screen.

    Args:
        as_of: Names a past moment for the headline; empty for the present.
        every: Whether each attempt is shown with its reasons, not only the newest.
        with_nodes: Whether the nodes of each reason are named.
    """
    where = f" on {story.node}" if story.node else ""
    yield Line(f"Pod {story.namespace}/{story.name}{as_of}: {story.status}{where}", "bold")
    if story.why:
        yield Line(f"  {story.why}", "yellow")
    if story.uid:
        amounts = (f"{name} {amount_for(name, amount, up=True)}" for name, amount in sorted(story.requests.items()))
        asked = ", ".join(amounts) or "nothing"
        wanted = ", ".join(f"{key}={value}" for key, value in sorted(story.node_selector.items()))
        yield Line(f"  uid {story.uid}, requests {asked}" + (f", nodes with {wanted}" if wanted else ""))
    if story.disruption is not None:
        yield Line(f"  {story.disruption.sentence}", "red")
    if story.missed_seconds is not None:
        yield Line(f"  its workload missed one pod for {duration_text(story.missed_seconds)}")
    if every:
        yield from event_lines(story, with_nodes=with_nodes)
    else:
        yield from _short_event_lines(story, with_nodes=with_nodes)
    if story.wait_seconds is not None:
        yield Line(f"  placed {duration_text(story.wait_seconds)} after it was submitted")
    if story.used is not None:
        usage, at = story.used.usage, time_text(story.used.at)
        yield Line(f"  uses {cores(usage.cpu_milli)} cores, {gibibytes(usage.memory_bytes)} as reported {at}")


def event_lines(story: PodStory, *, with_nodes: bool = True) -> Iterator[Line]:
    """The events in a life, oldest first. Equal consecutive explanations form one entry."""
    for same in _alike(story.moments):
        yield from _moment_lines(same, with_nodes=with_nodes)


def _short_event_lines(story: PodStory, *, with_nodes: bool) -> Iterator[Line]:
    """The events in a life, of the failed attempts only the newest."""
    moments = list(_without_what_follows(story.moments)) if story.why else story.moments
    failed = [number for number, moment in enumerate(moments) if moment.step in REPEATED]
    others = [number for number in range(len(moments)) if number not in set(failed)]
    # A pending pod may have been nominated and moved often. Its submission is the first event.
    hidden = set(others[1 : -MOST_EVENTS + 1] if story.status == "Pending" and len(others) > MOST_EVENTS else [])
    for number, moment in enumerate(moments):
        if failed and number == failed[-1]:
            yield from _newest_attempt_lines(moment, with_nodes=with_nodes, is_pending=bool(story.why))
        elif number in failed:
            if number == failed[0]:
                yield _earlier_line(moment, len(failed) - 1, "explanation")
        elif number in hidden:
            if number == others[1]:
                yield _earlier_line(moment, len(hidden), "event")
        else:
            yield from _moment_lines([moment], with_nodes=with_nodes)


def _earlier_line(first: StoryEntry, number: int, noun: str) -> Line:
    counted = f"{number} earlier {noun}{'' if number == 1 else 's'}"
    text = f"  {time_text(first.at)}  {first.step:<18} first of {counted}: --all shows them"
    return Line(text, STYLES.get(first.step, ""))


def _newest_attempt_lines(moment: StoryEntry, *, with_nodes: bool, is_pending: bool) -> Iterator[Line]:
    attempt = f" (attempt {moment.attempt})" if moment.attempt else ""
    diagnosis = moment.diagnosis
    has_table = is_pending and diagnosis is not None and bool(diagnosis.failures)
    sentence = headline(moment.sentence, diagnosis)
    if has_table and moment.explanation is not None:
        sentence = f"0 of {moment.explanation.nodes_considered} nodes fit"
    style = STYLES.get(moment.step, "")
    yield Line(f"  {time_text(moment.at)}  {moment.step:<18} {sentence}{attempt}".rstrip(), style)
    if diagnosis is None:
        return
    details = [*diagnosis.pre_filter_details, *_gang_lines(diagnosis), *_suggestion_lines(diagnosis)]
    if has_table:
        yield from (Line(f"      {text}", each) for text, each in attempt_lines(diagnosis, with_nodes=with_nodes))
    yield from (Line(f"      {detail}") for detail in details)


def _alike(moments: Sequence[StoryEntry]) -> Iterator[list[StoryEntry]]:
    """Lists of events: consecutive equal explanations form one list, every other event is alone."""
    run: list[StoryEntry] = []
    for moment in _without_what_follows(moments):
        if run and not (moment.step in REPEATED and _says(moment) == _says(run[-1])):
            yield run
            run = []
        run.append(moment)
    if run:
        yield run


def _without_what_follows(moments: Sequence[StoryEntry]) -> Iterator[StoryEntry]:
    """The events of a pod; a nomination omits victims that the explanation before it already names."""
    yield from moments[:1]
    for before, moment in pairwise(moments):
        preemption = before.diagnosis.preemption if before.diagnosis is not None else None
        is_shown = preemption is not None and (preemption.node, preemption.victims) == (moment.node, moment.victims)
        if moment.step == "nominated" and is_shown:
            yield StoryEntry(step=moment.step, at=moment.at, position=moment.position, sentence=f"to {moment.node}")
        else:
            yield moment


def _says(moment: StoryEntry, *, with_nodes: bool = True) -> tuple[str, str, list[str]]:
    """Step, sentence and details of an event as they are printed; consecutive events with equal ones are merged.

    Time, number of the attempt and decision basis are not included.
    """
    found = moment.explanation
    details = explanation_lines(found, moment.diagnosis, with_nodes=with_nodes) if found is not None else []
    if moment.step == "placed":
        del details[:1]  # the sentence contains the number of nodes
    return moment.step, headline(moment.sentence, moment.diagnosis), details


def _moment_lines(same: Sequence[StoryEntry], *, with_nodes: bool = True) -> Iterator[Line]:
    moment, last = same[0], same[-1]
    what, sentence, details = _says(moment, with_nodes=with_nodes)
    attempt = f" (attempt {moment.attempt})" if moment.attempt else ""
    position = f"  position {moment.position}" if moment.position else ""
    style = STYLES.get(what, "")
    yield Line(f"  {time_text(moment.at)}  {what:<18} {sentence}{attempt}{position}".rstrip(), style)
    yield from (Line(f"      {detail}") for detail in details)
    yield from (Line(f"      given {chosen}") for chosen in moment.chosen)
    yield from (
        Line(f"      {value.plugin}: {value.name} {value.old or '(unset)'} -> {value.new or '(empty)'}")
        for value in moment.hooked
    )
    yield from (Line(f"      writes {key}: {value}".rstrip()) for key, value in sorted(moment.annotations.items()))
    if len(same) > 1:
        until = f" (attempt {last.attempt})" if last.attempt else ""
        times = "once" if len(same) == 2 else f"{len(same) - 1} times"
        yield Line(f"  {time_text(last.at)}  {what:<18} {times} more until then, for the same reasons{until}", style)
    if last.explanation is not None:
        yield Line(f"      {basis_line(last.explanation)}")
