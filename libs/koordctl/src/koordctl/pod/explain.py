"""`koord explain pod`: the life of a pod, and why, from the events of the log."""

from collections.abc import Coroutine
from datetime import timedelta
from typing import Annotated, Any

import msgspec
import typer
from koordcore.events import CATALOGUE
from koordcore.events.admission import admission_ref
from koordcore.events.descheduling import COSTS
from koordcore.events.envelope import AggregateRef, StoredEvent, name_token
from koordcore.events.objects import PodSpecAdded
from koordcore.events.observation import NodeUsageReported, Usage
from koordcore.protocol.objects import generated_base
from koordcore.stories.moment import TimelineEntry
from koordcore.stories.pod import OF_NODE
from koordcore.values import codec

from koordctl.access.clients import meant_elsewhere, uid_of_pod
from koordctl.access.log import OpenLog, open_log, wait_for, warn_of_dropped
from koordctl.access.past import AsOf, Past, past_of
from koordctl.access.times import warn_of_clock
from koordctl.descheduling.migration import migration_of
from koordctl.node.hardware import given_hardware
from koordctl.pod.admission import decision_on_generated, decisions_about_pod, denials, is_admitted, stored_because
from koordctl.pod.lines import pod_lines
from koordctl.pod.story import PodStory, Used, denied_pod, explained_pod
from koordctl.render.output import Format, Output, fail, field, show_story


def pod(
    name: Annotated[str, typer.Argument(help="The pod's name.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Its namespace.")] = "default",
    uid: Annotated[str | None, typer.Option("--uid", help="Uid of a pod that is deleted.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All events and attempts, with the decision basis.")] = False,
    nodes: Annotated[bool, typer.Option("--nodes", help="The nodes of each reason, with details.")] = False,
    as_of: AsOf = None,
    output: Output = Format.TABLE,
) -> None:
    """Show a pod's life: admission, attempts with their reasons, placement, start, usage; for a denied pod, the rules.

    Of a pending pod, a sentence says what it lacks and what would help. A table has the reasons of the newest attempt,
    those first that are nearest to fitting.

    Examples:

      koord explain pod web

      koord explain pod web --all --nodes

      koord explain pod web -n shop -o json

      koord explain pod web --as-of 1200
    """
    path = f"/api/pods/{uid}" if uid else f"/api/namespaces/{namespace}/pods/{name}"
    past = None if as_of is None else past_of(path, as_of, f"there was no pod {namespace}/{name} up to {as_of}")
    known = uid or (uid_of_pod(namespace, name) if past is None else str(field(past.answer, "pod.uid")))
    life = life_of_pod(known, past, by_name=uid is None) if known is not None else _denied_pod(namespace, name)
    story = wait_for(life if past is not None else _with_cost(life))
    if not story.moments:
        fail(
            f"the log has no pod with uid {known}"
            if known is not None
            else f"there is no pod {namespace}/{name} and there never was one{meant_elsewhere(name, namespace)}"
        )
    lines = pod_lines(story, past.label if past else "", every=every, with_nodes=nodes)
    show_story(msgspec.to_builtins(story), lines, output)
    if output is Format.TABLE:
        warn_of_clock()


async def life_of_pod(uid: str, past: Past | None, *, by_name: bool) -> PodStory:
    """Return what `koord explain pod` shows of a pod, at a past moment or (`past` is None) now.

    If `by_name`, the pod is the last one with its name, so later denials of its name belong to it.
    """
    async with open_log() as log:
        end = None if past is None else past.position
        facts = [event for kind in ("podspec", "pod", "eviction") for event in await log.facts_of(kind, uid, upto=end)]
        await warn_of_dropped(log, "this pod", facts, begin=PodSpecAdded)
        begin = facts[0].seq if facts else 0
        facts += await log.recent(COSTS, timedelta(days=7), after=begin, upto=end)  # each is about up to 200 pods
        placed = sorted((event for event in facts if event.type == "PodPlaced"), key=lambda event: event.seq)
        nodes = list(dict.fromkeys(name_token(msgspec.json.decode(event.body)["node"]) for event in placed))
        for token in nodes:
            for kind in ("nodestate", "criproxy"):
                of_node = await log.facts_of(kind, token, after=placed[0].seq, upto=end)
                facts += (event for event in of_node if event.type in OF_NODE)
        hardware = await given_hardware(log.bus.events, placed)
        admitted = await _admission_of(log, facts, is_last=by_name)
        if past is not None:
            before = [stored for stored in admitted if stored.based_on <= past.position]
            explanations = [*before, *_past_explanations(uid, past.answer["timeline"])]
            return explained_pod(uid, facts, explanations, _past_use(past.answer), hardware)
        subjects = [log.names.subject("explanations", AggregateRef(kind, uid)) for kind in ("pod", "refusal")]
        told = [each for subject in subjects for each in await log.explanations.of_subject(subject)]
        explanations = [*admitted, *sorted(told, key=lambda stored: stored.seq)]
        report = await log.last_report(name_token(msgspec.json.decode(placed[-1].body)["node"])) if placed else None
        return explained_pod(uid, facts, explanations, _use_of(uid, report), hardware)


async def _with_cost(life: Coroutine[Any, Any, PodStory]) -> PodStory:
    """Add the seconds for which the workload missed the pod, if a migration took it."""
    story = await life
    job = "" if story.disruption is None else story.disruption.job
    migration = await migration_of(job) if job else None
    return story if migration is None else msgspec.structs.replace(story, missed_seconds=migration.unavailable_seconds)


async def _admission_of(log: OpenLog, facts: list[StoredEvent], *, is_last: bool) -> list[StoredEvent]:
    """The decisions of admission about a pod; empty if the event of its creation is unknown."""
    added = next((stored for stored in facts if stored.type == PodSpecAdded.__name__), None)
    event = CATALOGUE.read(added) if added is not None else None
    if added is None or not isinstance(event, PodSpecAdded):
        return []
    meta = event.object.metadata
    decisions = await _admission(log, meta.namespace, meta.name)
    own = decisions_about_pod(facts, decisions, is_last=is_last)
    if is_admitted(own) or not generated_base(meta.name):
        return own
    everybodys = f"{log.names.prefix('explanations')}admission.*"
    unnamed = decision_on_generated(added, await log.explanations.between(everybodys, *stored_because(added)))
    return [unnamed, *own] if unnamed is not None else own


async def _denied_pod(namespace: str, name: str) -> PodStory:
    async with open_log() as log:
        return denied_pod(namespace, name, denials(await _admission(log, namespace, name)))


async def _admission(log: OpenLog, namespace: str, name: str) -> list[StoredEvent]:
    """The decisions of admission that the log still retains about pods with a name."""
    return await log.explanations.of_subject(log.names.subject("explanations", admission_ref("pods", namespace, name)))


def _use_of(uid: str, report: NodeUsageReported | None) -> Used | None:
    found = next((each for each in report.pods if each.uid == uid), None) if report is not None else None
    return Used(usage=found.usage, at=report.updated_at, qos=found.qos) if report is not None and found else None


def _past_use(answer: dict[str, Any]) -> Used | None:
    if not answer["usage"]:
        return None
    last = answer["usage"][-1]
    usage = Usage(cpu_milli=last["cpu_used"], memory_bytes=last["memory_used"])
    return Used(usage=usage, at=last["reported_at"], qos=answer["pod"]["qos"])


def _past_explanations(uid: str, timeline: list[dict[str, Any]]) -> list[StoredEvent]:
    """The explanations of a pod up to a past moment, in order.

    They come from the projector, because it keeps all explanations and the stream of the log does not.
    """
    entries = codec.convert(timeline, list[TimelineEntry])
    told = (entry.as_explanation(uid) for entry in entries if entry.stream == "explanations")
    return [stored for stored in told if stored is not None]
