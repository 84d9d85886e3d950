"""`koord trace KIND`: the life of an object as one trace over all services."""

from __future__ import annotations

import os
from typing import Annotated

import msgspec
import typer

from koordctl.access.clients import meant_elsewhere, uid_of_pod
from koordctl.access.log import wait_for
from koordctl.explain.pod_trace import COLUMNS, pod_trace, trace_rows
from koordctl.pod.explain import life_of_pod
from koordctl.render.output import Format, console, fail, show_document, show_table
from koordctl.render.units import duration_text

app = typer.Typer(help="Show the life of a pod as one trace over all services.", no_args_is_help=True)


@app.callback()
def trace() -> None:
    """Show the life of a pod as one trace over all services."""


@app.command()
def pod(
    name: Annotated[str, typer.Argument(help="The pod's name.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Its namespace.")] = "default",
    uid: Annotated[str | None, typer.Option("--uid", help="Uid of a pod that is deleted.")] = None,
    output: Annotated[Format, typer.Option("--output", "-o", help="table (for people), json or yaml.")] = Format.TABLE,
) -> None:
    """Show when each service did its step for a pod, and the time before the step.

    The times are those of the events in the log. If KOORD_JAEGER is the address of Jaeger, its page of the trace is
    named, too.

    Examples:

      koord trace pod web

      koord trace pod web -n shop -o json
    """
    known = uid or uid_of_pod(namespace, name)
    story = None if known is None else wait_for(life_of_pod(known, None, by_name=uid is None))
    if story is None or not story.moments:
        fail(
            f"no pod has uid {known}"
            if known is not None
            else f"there is no pod {namespace}/{name} and there never was one{meant_elsewhere(name, namespace)}"
        )
    found = pod_trace(story)
    if output is not Format.TABLE:
        show_document(msgspec.to_builtins(found), output)
        return
    whole = duration_text(found.steps[-1].offset_seconds)
    console.print(f"Pod {found.namespace}/{found.name}: {len(found.steps)} steps in {whole}", highlight=False)
    console.print(f"  trace {found.trace or '- (no tracing)'}", highlight=False)
    jaeger = os.environ.get("KOORD_JAEGER", "").rstrip("/")
    if jaeger and found.trace:
        console.print(f"  {jaeger}/trace/{found.trace}", highlight=False, soft_wrap=True)
    show_table(COLUMNS, trace_rows(found))
