"""The state of a node as lines for a terminal: the output of `koord explain node`. Pure."""

import json
import re
from collections.abc import Iterator
from typing import Final

from koordctl.explain.hardware_lines import hardware_lines
from koordctl.explain.node_policy import other_lines, overcommit_lines
from koordctl.explain.node_story import NodeStory
from koordctl.render.output import Line
from koordctl.render.units import amounts_text, cfs_quota_text, cores, gibibytes, sentence_in_cores, time_text

_QUOTA_PART: Final = re.compile(r"; quota (-?\d+ -> -?\d+ us|[\w. ]+ -> [\w. ]+(?= \())")
"""The part of a reason of a quota change that repeats the old and the new quota."""


def node_lines(story: NodeStory, as_of: str = "") -> Iterator[Line]:
    """Yield the lines that show a node: usage, hardware, overcommit, best-effort quota, protection and NodeSLO.

    `as_of` names a past moment for the headline; it is empty for the present.
    """
    if not story.allocatable:
        yield Line(f"Node {story.name} was deleted; this is its last known state", "bold red")
    yield Line(f"Node {story.name}{as_of}: {story.host or 'no agent yet'}", "bold")
    yield Line(f"  allocatable {amounts_text(story.allocatable)}")
    if story.kept_back:
        yield Line(f"  reserved on the node {amounts_text(story.kept_back)}: pods do not get it")
    yield from _usage_lines(story)
    if story.hardware is not None:
        yield Line("  hardware", "bold")
        yield from (Line(f"    {line}") for line in hardware_lines(story.hardware))
    yield Line("  overcommit", "bold")
    if story.batch_cpu_milli is None:
        yield Line(f"    no batch resources: {story.overcommit_reason or 'not computed yet'}")
    yield from (Line(f"    {line}") for line in (overcommit_lines(story.policy) if story.policy else ()))
    if story.terms:
        yield Line(f"    published {time_text(story.overcommit_at)}: {story.overcommit_reason}")
    others = list(other_lines(story.policy)) if story.policy else []
    if others:
        yield Line("  other decisions", "bold")
    yield from (Line(f"    {line}") for line in others)
    yield Line("  best-effort cpu", "bold")
    told = f", reported {time_text(story.changes[-1].at)}" if story.changes else ""
    yield Line(f"    quota {cfs_quota_text(story.be_quota_us)}{told}")
    for change in story.changes:
        step = f"{cfs_quota_text(change.old_us)} -> {cfs_quota_text(change.new_us)}"
        why = sentence_in_cores(_QUOTA_PART.sub("", change.reason))
        yield Line(f"    {time_text(change.at)}  {step}: {why}")
    if story.protection or story.contended:
        yield Line("  protection", "bold")
    yield from (Line(f"    interference: {disturbed}", "yellow") for disturbed in story.contended)
    yield from (Line(f"    {time_text(told.at)}  {told.what:<12} {told.sentence}") for told in story.protection)
    yield Line("  NodeSLO in force", "bold")
    yield from (Line(f"    {leaf}") for leaf in _leaves(story.slo or {}))
    if not story.slo:
        yield Line("    defaults (none rendered)")


def _usage_lines(story: NodeStory) -> Iterator[Line]:
    sample = story.sample
    if sample is None:
        yield Line(f"  {story.running} running pods, no report yet")
        return
    yield Line(
        f"  uses {cores(sample.node.cpu_milli)} cores, {gibibytes(sample.node.memory_bytes)}"
        f" (system {cores(sample.system.cpu_milli if sample.system else None)} cores, best effort"
        f" {cores(sample.best_effort.cpu_milli)} cores)"
    )
    measured = "" if sample.pods is None else f", {sample.pods} measured"
    yield Line(f"  {story.running} running pods{measured}, reported {time_text(sample.at)}")


def _leaves(value: object, path: str = "") -> Iterator[str]:
    """Yield one line of the form `a.b.c = value` for each value in nested mappings."""
    if isinstance(value, dict):
        for name, item in value.items():  # pyright: ignore[reportUnknownVariableType]  # decoded JSON
            yield from _leaves(item, f"{path}.{name}" if path else str(name))  # pyright: ignore[reportUnknownArgumentType]  # decoded JSON
    else:
        yield f"{path} = {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
