"""`koord explain node`: the state of a node, and the decisions about it, from the events of the log."""

from typing import Annotated, Any

import msgspec
import typer
from koordcore.events.envelope import name_token
from koordcore.events.objects import NodeSpecAdded
from koordcore.events.observation import Usage

from koordctl.access.log import open_log, wait_for, warn_of_dropped
from koordctl.access.past import AsOf, Past, past_of
from koordctl.access.times import warn_of_clock
from koordctl.node.hardware import hardware_now, past_hardware
from koordctl.node.lines import node_lines
from koordctl.node.story import NodeSample, NodeStory, node_story, sample_of
from koordctl.render.output import Format, Output, fail, show_story


def node(
    name: Annotated[str, typer.Argument(help="The node's name.")],
    every: Annotated[bool, typer.Option("--all", help="Also all values of the NodeSLO in force.")] = False,
    as_of: AsOf = None,
    output: Output = Format.TABLE,
) -> None:
    """Show a node: status, usage, hardware with who holds what, overcommit, best-effort suppression, NodeSLO.

    Examples:

      koord explain node node-1

      koord explain node node-1 -o yaml

      koord explain node node-1 --as-of 2026-11-21T08:30:00Z
    """
    past = None if as_of is None else past_of(f"/api/nodes/{name}", as_of, f"there was no node {name} at {as_of}")
    story = wait_for(_node_story(name, past))
    if not story.allocatable and not story.host:
        fail(f"there is no node {name} and there never was one")
    show_story(msgspec.to_builtins(story), node_lines(story, past.label if past else "", every=every), output)
    if output is Format.TABLE:
        warn_of_clock()


async def _node_story(name: str, past: Past | None) -> NodeStory:
    token, end = name_token(name), None if past is None else past.position
    async with open_log() as log:
        specs = await log.facts_of("nodespec", token, upto=end)
        await warn_of_dropped(log, "this node", specs, begin=NodeSpecAdded)
        policy = await log.facts_of("nodepolicy", token, upto=end)
        state = await log.facts_of("nodestate", token, upto=end)
        if past is not None:
            sample = _past_sample(past.answer)
        else:
            report = await log.last_report(token)
            sample = sample_of(report) if report is not None else None
        story = node_story(name, specs[-1] if specs else None, policy, state, sample)
        hardware = (
            await hardware_now(log.bus.events, log.bus.desired, name)
            if past is None
            else past_hardware(name, past.position)
        )
        is_known = hardware is not None and (hardware.sockets or hardware.owners or hardware.problems)
        return msgspec.structs.replace(story, hardware=hardware if is_known else None)


def _past_sample(answer: dict[str, Any]) -> NodeSample | None:
    """None if there was no report at that moment or it had expired."""
    if not answer["usage"] or answer["node"]["cpu_used"] is None:
        return None
    last = answer["usage"][-1]
    return NodeSample(
        at=last["reported_at"],
        node=Usage(last["cpu_used"], last["memory_used"]),
        system=Usage(last["system_cpu_used"]),
        best_effort=Usage(last["be_cpu_used"], last["be_memory_used"]),
    )
