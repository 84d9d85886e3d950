"""`koord explain KIND`: print what happened to an object, and why, from the events of the log."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import typer
from koordcore.events import CATALOGUE
from koordcore.events.admission import admission_ref
from koordcore.events.criproxy import HookServerFailed
from koordcore.events.descheduling import COSTS
from koordcore.events.envelope import (
    HEADER_ACTOR,
    HEADER_BASED_ON,
    HEADER_OCCURRED_AT,
    HEADER_SCHEMA,
    HEADER_TRACEPARENT,
    HEADER_TYPE,
    AggregateRef,
    StoredEvent,
    name_token,
)
from koordcore.events.nodestate import ContainerHookApplied, ContainerHookFailed, PodsStarted, PodsStopped
from koordcore.events.objects import NodeSpecAdded, PodSpecAdded
from koordcore.events.observation import NodeUsageReported, Usage
from koordcore.events.pod import PodPlaced
from koordcore.protocol.objects import generated_base
from koordcore.stories.hardware import NodeHardware
from koordcore.stories.reservations import ReservationView
from koordcore.values import codec

from koordctl.access.clients import NOT_FOUND, manager, meant_elsewhere, projector
from koordctl.access.hardware import hardware_now, layout_at, past_hardware
from koordctl.access.log import OpenLog, open_log, wait_for, warn_of_dropped
from koordctl.access.migrations import migration_of, with_cost
from koordctl.access.past import ask_as_of, moment_text
from koordctl.access.reservations import reservations_of
from koordctl.access.run_clock import clock_sentence, run_clock
from koordctl.explain.hardware_lines import gives_hardware
from koordctl.explain.migration_lines import migration_lines
from koordctl.explain.node_story import NodeSample, NodeStory, node_story, sample_of
from koordctl.explain.pod_admission import (
    decision_on_generated,
    decisions_about_pod,
    denials,
    is_admitted,
    stored_because,
)
from koordctl.explain.pod_story import PodStory, Used, denied_pod, explained_pod
from koordctl.explain.reservation_lines import UsedAmounts, reservation_lines, split_amounts
from koordctl.explain.story_text import Line, event_lines, node_lines, pod_lines
from koordctl.render.output import Format, console, errors, fail, field, show_document
from koordctl.render.units import time_text

app = typer.Typer(help="Explain a pod, a node, a Reservation or a migration from the log.", no_args_is_help=True)

Output = Annotated[Format, typer.Option("--output", "-o", help="table (for people), json or yaml.")]
AsOf = Annotated[
    str | None, typer.Option("--as-of", help="Position of the log, or RFC 3339 time: the explanation at that moment.")
]


_OF_PODS: Final = tuple(
    event.__name__ for event in (PodsStarted, PodsStopped, ContainerHookApplied, ContainerHookFailed, HookServerFailed)
)
"""Facts of the agent and the CRI proxy of a node that belong to the stories of single pods."""
_NO_SPAN: Final = "0" * 16


class Past(NamedTuple):
    """The projector's answer about an object at a past moment: position and RFC 3339 time of it, and the object."""

    position: int
    at: str
    answer: dict[str, Any]

    @property
    def label(self) -> str:
        """The moment as text for the first line of the output."""
        return f" as of position {self.position} ({time_text(self.at)})"


@app.command()
def pod(
    name: Annotated[str, typer.Argument(help="The pod's name.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Its namespace.")] = "default",
    uid: Annotated[str | None, typer.Option("--uid", help="Uid of a pod that is deleted.")] = None,
    as_of: AsOf = None,
    output: Output = Format.TABLE,
) -> None:
    """Show a pod's life: admission, attempts with their reasons, placement, start, usage; for a denied pod, the rules.

    Examples:

      koord explain pod web

      koord explain pod web -n shop -o json

      koord explain pod web --as-of 1200
    """
    path = f"/api/pods/{uid}" if uid else f"/api/namespaces/{namespace}/pods/{name}"
    past = None if as_of is None else _past(path, as_of, f"there was no pod {namespace}/{name} up to {as_of}")
    known = uid or (uid_of_pod(namespace, name) if past is None else str(field(past.answer, "pod.uid")))
    life = life_of_pod(known, past, by_name=uid is None) if known is not None else _denied_pod(namespace, name)
    story = wait_for(life if past is not None else with_cost(life))
    if not story.moments:
        fail(
            f"the log has no pod with uid {known}"
            if known is not None
            else f"there is no pod {namespace}/{name} and there never was one{meant_elsewhere(name, namespace)}"
        )
    _show(story, pod_lines(story, past.label if past else ""), output)


@app.command()
def node(
    name: Annotated[str, typer.Argument(help="The node's name.")],
    as_of: AsOf = None,
    output: Output = Format.TABLE,
) -> None:
    """Show a node: usage, hardware with who holds what, overcommit, best-effort suppression, the NodeSLO in force.

    Examples:

      koord explain node node-1

      koord explain node node-1 -o yaml

      koord explain node node-1 --as-of 2026-11-21T08:30:00Z
    """
    past = None if as_of is None else _past(f"/api/nodes/{name}", as_of, f"there was no node {name} at {as_of}")
    story = wait_for(_node_story(name, past))
    if not story.allocatable and not story.host:
        fail(f"there is no node {name} and there never was one")
    _show(story, node_lines(story, past.label if past else ""), output)


@app.command()
def reservation(
    name: Annotated[str, typer.Argument(help="The Reservation's name.")],
    as_of: AsOf = None,
    output: Output = Format.TABLE,
) -> None:
    """Show a Reservation: its placement, the pods that use it, and why pending pods do not.

    Examples:

      koord explain reservation web

      koord explain reservation web --as-of 1200
    """
    found = reservations_of(name, as_of)
    if not found.views:
        fail(f"there is no Reservation {name}" + (f" at {as_of}" if as_of else ""))
    view = found.views[0]
    label = f" as of position {found.position} ({time_text(found.at)})" if as_of else ""
    life, uses = wait_for(_life_of(view, None if as_of is None else found.position))
    from koordctl.access.claims import pending_claims  # it loads the scheduler's rules

    claims = pending_claims(view, as_of)
    if output in (Format.JSON, Format.YAML):
        story = {"reservation": view, "uses": uses, "claims": claims, "life": life.moments}
        show_document(codec.to_builtins(story), output)
        return
    _print(Line(text) for text in reservation_lines(view, uses, claims, label))
    _print(event_lines(life))


@app.command()
def migration(
    name: Annotated[str, typer.Argument(help="The PodMigrationJob's name, also of a deleted one.")],
    output: Output = Format.TABLE,
) -> None:
    """Show a migration: why it was asked for, each step with its reason, and what it cost.

    Examples:

      koord explain migration drain-node-1-0a1b2c3d
    """
    if (story := wait_for(migration_of(name))) is None:
        fail(f"there are no facts about a PodMigrationJob {name}: see koord get migrations")
    if output in (Format.JSON, Format.YAML):
        show_document(codec.to_builtins(story), output)
        return
    _print(migration_lines(story))


async def _life_of(view: ReservationView, until: int | None) -> tuple[PodStory, list[UsedAmounts]]:
    """Return the events in the life of a Reservation, and the amounts that each pod takes from it and from the node."""
    async with open_log() as log:

        async def events(kind: str, id_: str) -> list[StoredEvent]:
            found = await log.bus.events.read_aggregate(AggregateRef(kind, id_))
            return [event for event in found if until is None or event.seq <= until]

        told = await log.explanations.of_subject(log.names.subject("explanations", AggregateRef("pod", view.uid)))
        told = [event for event in told if until is None or event.based_on <= until]
        own = await events("pod", view.uid)
        await warn_of_dropped(log, "this Reservation", own)
        placed = [event for event in own if event.type == PodPlaced.__name__]
        life = explained_pod(view.uid, own, told, hardware=await _hardware_of(log, placed))
        # the annotation of a pod that uses a Reservation is not written for the Reservation itself
        life = msgspec.structs.replace(
            life, moments=[msgspec.structs.replace(each, annotations={}) for each in life.moments]
        )
        uses: list[UsedAmounts] = []
        for owner in view.owners:
            placed = [event for event in await events("pod", owner.uid) if event.type == PodPlaced.__name__]
            event = CATALOGUE.read(placed[-1]) if placed else None
            if isinstance(event, PodPlaced):
                given, rest = split_amounts(event.allocation, event.requests)
                pod = f"{owner.namespace}/{owner.name}"
                uses.append(UsedAmounts(pod=pod, from_reservation=given, from_node=rest))
        return life, uses


def _show(story: PodStory | NodeStory, lines: Iterable[Line], output: Format) -> None:
    if output in (Format.JSON, Format.YAML):
        show_document(msgspec.to_builtins(story), output)
        return
    _print(lines)
    if clock := clock_sentence(run_clock()):
        errors.print(clock, highlight=False, markup=False)


def _print(lines: Iterable[Line]) -> None:
    for line in lines:
        console.print(
            line.text, style=line.style or None, highlight=False, markup=False, soft_wrap=not console.is_terminal
        )


def uid_of_pod(namespace: str, name: str) -> str | None:
    """Return the uid of the pod with a name, or of the last deleted one, or None if there never was such a pod."""
    live = manager.request("GET", f"/v1/objects/Pod/{name}", params={"namespace": namespace})
    if live.status_code != NOT_FOUND:
        return str(field(manager.decoded(live), "metadata.uid"))
    past = projector.request("GET", f"/api/namespaces/{namespace}/pods/{name}")
    if past.status_code == NOT_FOUND:
        return None
    return str(field(projector.decoded(past), "pod.uid"))


def _past(path: str, at: str, missing: str) -> Past:
    """Return the projector's answer about an object at a past moment. End the command if it did not exist then."""
    answer = ask_as_of(path, moment_text(at))
    if answer is None:
        fail(missing)
    return Past(int(answer["moment"]["position"]), str(answer["moment"]["occurred_at"]), answer)


async def life_of_pod(uid: str, past: Past | None, *, by_name: bool) -> PodStory:
    """Return everything that `koord explain pod` shows of a pod, at a past moment or (`past` is None) now.

    If `by_name`, the pod is the last one with its name, so later denials of its name belong to it.
    """
    async with open_log() as log:
        facts = [event for kind in ("podspec", "pod", "eviction") for event in await _aggregate(log, kind, uid, past)]
        await warn_of_dropped(log, "this pod", facts, begin=PodSpecAdded)
        begin, end = facts[0].seq if facts else 0, None if past is None else past.position
        facts += await log.recent(COSTS, timedelta(days=7), after=begin, upto=end)  # each is about up to 200 pods
        placed = sorted((event for event in facts if event.type == "PodPlaced"), key=lambda event: event.seq)
        nodes = list(dict.fromkeys(name_token(msgspec.json.decode(event.body)["node"]) for event in placed))
        for token in nodes:
            for kind in ("nodestate", "criproxy"):
                of_node = await _aggregate(log, kind, token, past, after=placed[0].seq)
                facts += (event for event in of_node if event.type in _OF_PODS)
        hardware = await _hardware_of(log, placed)
        admitted = await _admission_of(log, facts, is_last=by_name)
        if past is not None:
            before = [stored for stored in admitted if stored.based_on <= past.position]
            explanations = [*before, *_past_explanations(uid, past.answer["timeline"])]
            return explained_pod(uid, facts, explanations, _past_use(past.answer), hardware)
        subjects = [log.names.subject("explanations", AggregateRef(kind, uid)) for kind in ("pod", "refusal")]
        told = [each for subject in subjects for each in await log.explanations.of_subject(subject)]
        explanations = [*admitted, *sorted(told, key=lambda stored: stored.seq)]
        report = await _last_report(log, name_token(msgspec.json.decode(placed[-1].body)["node"])) if placed else None
        return explained_pod(uid, facts, explanations, _use_of(uid, report), hardware)


async def _hardware_of(log: OpenLog, placed: list[StoredEvent]) -> dict[int, NodeHardware]:
    """Return the hardware of the node for each placement that gave the pod CPUs or devices, by position."""
    found: dict[int, NodeHardware] = {}
    for stored in placed:
        event = CATALOGUE.read(stored)
        if isinstance(event, PodPlaced) and gives_hardware(event.allocation):
            found[stored.seq] = await layout_at(log.bus.events, event.node, stored.seq)
    return found


async def _admission_of(log: OpenLog, facts: list[StoredEvent], *, is_last: bool) -> list[StoredEvent]:
    """Return the decisions of admission about a pod, or an empty list if the event of its creation is unknown."""
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
    """Return the decisions of admission that the log still retains about pods with a name."""
    return await log.explanations.of_subject(log.names.subject("explanations", admission_ref("pods", namespace, name)))


async def _node_story(name: str, past: Past | None) -> NodeStory:
    token = name_token(name)
    async with open_log() as log:
        specs = await _aggregate(log, "nodespec", token, past)
        await warn_of_dropped(log, "this node", specs, begin=NodeSpecAdded)
        policy = await _aggregate(log, "nodepolicy", token, past)
        state = await _aggregate(log, "nodestate", token, past)
        if past is not None:
            sample = _past_sample(past.answer)
        else:
            report = await _last_report(log, token)
            sample = sample_of(report) if report is not None else None
        story = node_story(name, specs[-1] if specs else None, policy, state, sample)
        hardware = (
            await hardware_now(log.bus.events, log.bus.desired, name)
            if past is None
            else past_hardware(name, past.position)
        )
        is_known = hardware is not None and (hardware.sockets or hardware.owners or hardware.problems)
        return msgspec.structs.replace(story, hardware=hardware if is_known else None)


async def _aggregate(log: OpenLog, kind: str, id_: str, past: Past | None, *, after: int = 0) -> list[StoredEvent]:
    """Return the events of one aggregate in order, up to the past moment if one was named."""
    found = await log.bus.events.read_aggregate(AggregateRef(kind, id_), after=after)
    return found if past is None else [event for event in found if event.seq <= past.position]


async def _last_report(log: OpenLog, token: str) -> NodeUsageReported | None:
    stored = await log.obs.last_of(log.names.subject("obs", AggregateRef("node", token)))
    event = CATALOGUE.read(stored) if stored is not None else None
    return event if isinstance(event, NodeUsageReported) else None


def _use_of(uid: str, report: NodeUsageReported | None) -> Used | None:
    found = next((each for each in report.pods if each.uid == uid), None) if report is not None else None
    return Used(usage=found.usage, at=report.updated_at, qos=found.qos) if report is not None and found else None


def _past_use(answer: dict[str, Any]) -> Used | None:
    if not answer["usage"]:
        return None
    last = answer["usage"][-1]
    usage = Usage(cpu_milli=last["cpu_used"], memory_bytes=last["memory_used"])
    return Used(usage=usage, at=last["reported_at"], qos=answer["pod"]["qos"])


def _past_sample(answer: dict[str, Any]) -> NodeSample | None:
    """Return the newest usage report of a node at a past moment, or None if there was none or it had expired."""
    if not answer["usage"] or answer["node"]["cpu_used"] is None:
        return None
    last = answer["usage"][-1]
    return NodeSample(
        at=last["reported_at"],
        node=Usage(last["cpu_used"], last["memory_used"]),
        system=Usage(last["system_cpu_used"]),
        best_effort=Usage(last["be_cpu_used"], last["be_memory_used"]),
    )


def _past_explanations(uid: str, timeline: list[dict[str, Any]]) -> list[StoredEvent]:
    """Return the explanations of a pod up to a past moment, in order.

    They come from the projector, because it keeps all explanations and the stream of the log does not.
    """
    return [
        StoredEvent(
            seq=0,
            ref=AggregateRef("pod", uid),
            headers={
                HEADER_TYPE: entry["type"],
                HEADER_SCHEMA: str(registered.schema),
                HEADER_OCCURRED_AT: entry["occurred_at"],
                HEADER_ACTOR: entry["actor"],
                HEADER_BASED_ON: str(entry["position"]),
                HEADER_TRACEPARENT: f"00-{entry['trace_id']}-{_NO_SPAN}-00" if entry["trace_id"] else "",
            },
            body=msgspec.json.encode(entry["body"]),
        )
        for entry in timeline
        if entry["stream"] == "explanations" and (registered := CATALOGUE.find(entry["type"])) is not None
    ]
