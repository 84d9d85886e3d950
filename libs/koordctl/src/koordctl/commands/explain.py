"""`koord explain pod|node`: the whole story from the log, on one screen."""

from typing import Annotated, Final

import msgspec
import typer
from koordcore.events.envelope import AggregateRef, StoredEvent, name_token

from koordctl.clients import manager, projector
from koordctl.log import OpenLog, open_log, wait_for
from koordctl.node_policy import other_lines, overcommit_lines
from koordctl.output import Format, console, fail, field, gib, milli, show_document
from koordctl.stories import (
    Moment,
    NodeStory,
    PodStory,
    diagnosis_lines,
    explanation_lines,
    node_story,
    pod_story,
    quota,
)

NOT_FOUND: Final = 404

app = typer.Typer(help="Why is it as it is? The answer, from the log.", no_args_is_help=True)

Output = Annotated[Format, typer.Option("--output", "-o", help="table (for people), json or yaml.")]


@app.command()
def pod(
    name: Annotated[str, typer.Argument(help="The pod's name.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Its namespace.")] = "default",
    uid: Annotated[
        str | None, typer.Option("--uid", help="A pod that is gone: its uid instead of looking it up.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """A pod's life: submitted, every verdict, the placement with its reasons, started, what it uses now.

    Examples:

      koord explain pod web

      koord explain pod web -n shop -o json
    """
    known = uid or _uid_of(namespace, name)
    story = wait_for(_pod_story(known))
    if not story.moments:
        fail(f"nothing is known of a pod with uid {known}")
    if output in (Format.JSON, Format.YAML):
        show_document(msgspec.to_builtins(story), output)
    else:
        _print_pod(story)


@app.command()
def node(
    name: Annotated[str, typer.Argument(help="The node's name.")],
    output: Output = Format.TABLE,
) -> None:
    """A node: what it uses, the overcommit formula with its numbers, the NodeSLO in force, best-effort suppression.

    Examples:

      koord explain node node-1

      koord explain node node-1 -o yaml
    """
    story = wait_for(_node_story(name))
    if not story.allocatable and not story.host:
        fail(f"Node {name} does not exist")
    if output in (Format.JSON, Format.YAML):
        show_document(msgspec.to_builtins(story), output)
    else:
        _print_node(story)


def _uid_of(namespace: str, name: str) -> str:
    """The uid of a pod, or of the last one of that name that is gone. Ends the command when there never was one."""
    live = manager.request("GET", f"/v1/objects/Pod/{name}", params={"namespace": namespace})
    if live.status_code != NOT_FOUND:
        return str(field(manager.decoded(live), "metadata.uid"))
    past = projector.request("GET", f"/api/namespaces/{namespace}/pods/{name}")
    if past.status_code == NOT_FOUND:
        fail(f"there is no pod {namespace}/{name}, and there never was one")
    return str(field(projector.decoded(past), "pod.uid"))


async def _pod_story(uid: str) -> PodStory:
    async with open_log() as log:
        facts = [event for kind in ("podspec", "pod", "eviction") for event in await _aggregate(log, kind, uid)]
        verdicts = await log.why.of_subject(log.names.subject("why", AggregateRef("pod", uid)))
        placed = [event for event in facts if event.type == "PodPlaced"]
        if not placed:
            return pod_story(uid, facts, verdicts, [], None)
        node_name = msgspec.json.decode(placed[-1].body)["node"]
        states = await _aggregate(log, "nodestate", name_token(node_name), after=placed[0].seq)
        report = await log.obs.last_of(log.names.subject("obs", AggregateRef("node", name_token(node_name))))
        return pod_story(uid, facts, verdicts, states, report)


async def _node_story(name: str) -> NodeStory:
    token = name_token(name)
    async with open_log() as log:
        spec = await log.bus.events.last_of(AggregateRef("nodespec", token))
        policy = await _aggregate(log, "nodepolicy", token)
        state = await _aggregate(log, "nodestate", token)
        report = await log.obs.last_of(log.names.subject("obs", AggregateRef("node", token)))
        return node_story(name, spec, policy, state, report)


async def _aggregate(log: OpenLog, kind: str, id_: str, *, after: int = 0) -> list[StoredEvent]:
    return await log.bus.events.read_aggregate(AggregateRef(kind, id_), after=after)


def _print_pod(story: PodStory) -> None:
    where = f" on {story.node}" if story.node else ""
    _say(f"Pod {story.namespace}/{story.name}: {story.status}{where}", style="bold")
    asked = ", ".join(f"{name} {_amount(name, amount)}" for name, amount in sorted(story.requests.items()))
    _say(f"  uid {story.uid}, requests {asked or 'nothing'}")
    for moment in story.moments:
        _print_moment(moment)
    if story.wait_ms is not None:
        _say(f"  placed {story.wait_ms:.1f} ms after it was submitted")
    if story.usage is not None:
        used = f"{milli(story.usage.cpu_milli)} cores, {gib(story.usage.memory_bytes)}"
        _say(f"  uses {used} as reported {_time(story.usage_at)}")


def _print_moment(moment: Moment) -> None:
    attempt = f" (attempt {moment.attempt})" if moment.attempt else ""
    position = f"  position {moment.position}" if moment.position else ""
    style = {
        "placed": "green",
        "started": "green",
        "refused": "yellow",
        "abandoned": "red",
        "gated": "yellow",
        "evicted": "red",
    }.get(moment.what)
    _say(f"  {_time(moment.at)}  {moment.what:<9} {moment.sentence}{attempt}{position}".rstrip(), style=style)
    if moment.explanation is not None:
        for line in explanation_lines(moment.explanation):
            _say(f"      {line}")
    if moment.diagnosis is not None:
        for line in diagnosis_lines(moment.diagnosis):
            _say(f"      {line}")


def _print_node(story: NodeStory) -> None:
    if not story.allocatable:
        _say(f"Node {story.name} is gone; what follows is the last that was known of it", style="bold red")
    _say(f"Node {story.name}: {story.host or 'no agent yet'}", style="bold")
    allocatable = ", ".join(f"{name} {_amount(name, amount)}" for name, amount in sorted(story.allocatable.items()))
    _say(f"  allocatable {allocatable}")
    if story.node_usage is not None:
        system = story.system_usage
        _say(
            f"  uses {milli(story.node_usage.cpu_milli)} cores, {gib(story.node_usage.memory_bytes)}"
            f" (system {milli(system.cpu_milli if system else None)} cores, best effort"
            f" {milli(story.be_usage.cpu_milli)} cores)"
        )
        _say(f"  {story.running} pods run, {story.pods_reported} measured, reported {_time(story.reported_at)}")
    else:
        _say("  no report yet")
    _say("  overcommit", style="bold")
    if story.batch_cpu_milli is None:
        _say(f"    no batch resources: {story.overcommit_reason or 'not computed yet'}")
    for line in overcommit_lines(story.policy) if story.policy else ():
        _say(f"    {line}")
    if story.terms:
        _say(f"    published {_time(story.overcommit_at)}: {story.overcommit_reason}")
    others = list(other_lines(story.policy)) if story.policy else []
    if others:
        _say("  also decided", style="bold")
    for line in others:
        _say(f"    {line}")
    _say("  best-effort cpu", style="bold")
    _say(f"    quota now: {quota(story.be_quota_us)}")
    for change in story.changes:
        _say(f"    {_time(change.at)}  {quota(change.old_us)} -> {quota(change.new_us)}: {change.reason}")
    if story.protection or story.contended:
        _say("  protection", style="bold")
    for disturbed in story.contended:
        _say(f"    disturbed now: {disturbed}", style="yellow")
    for told in story.protection:
        _say(f"    {_time(told.at)}  {told.what:<11} {told.sentence}")
    _say("  NodeSLO in force", style="bold")
    for line in _flat(story.slo or {}):
        _say(f"    {line}")
    if not story.slo:
        _say("    defaults (none rendered)")


def _flat(value: object, path: str = "") -> list[str]:
    """One line for each leaf, `a.b.c = value`."""
    if isinstance(value, dict):
        lines: list[str] = []
        for name, item in value.items():  # pyright: ignore[reportUnknownVariableType]  # decoded JSON
            lines += _flat(item, f"{path}.{name}" if path else str(name))  # pyright: ignore[reportUnknownArgumentType]  # decoded JSON
        return lines
    return [f"{path} = {value}"]


def _amount(name: str, amount: int) -> str:
    if name == "cpu":
        return milli(amount)
    return gib(amount) if name.endswith("memory") else str(amount)


def _time(text: str) -> str:
    """The date and time of an RFC 3339 text, to the millisecond."""
    return text.replace("T", " ")[:23] if text else "-"


def _say(line: str, *, style: str | None = None) -> None:
    console.print(line, style=style, highlight=False, markup=False, soft_wrap=not console.is_terminal)
