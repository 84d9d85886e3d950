"""`koord recommend`: show the requests that containers should have, with the measurements behind them."""

from collections.abc import Mapping
from http.client import HTTPException
from typing import Annotated, Any, TypeAlias

import msgspec
import typer
from koordcore.events import CATALOGUE
from koordcore.events.envelope import namespaced_from_token
from koordcore.events.recommendation import NO_BOUND, ContainerRecommendation, RecommendedAmounts
from koordcore.state.aggregates import RecommendationState
from koordcore.state.cluster import evolve

from koordctl.access.clients import ask, find_service
from koordctl.access.log import open_log, wait_for
from koordctl.render.output import Format, Output, console, fail, show_document, show_table
from koordctl.render.units import cores, gibibytes

KIND = "recommendation"
RESOURCE = "Recommendation"
NOTHING_YET = "nothing has been learned yet"

Known: TypeAlias = Mapping[tuple[str, str], RecommendationState | None]
"""(namespace, name) -> recommendation; None: the object exists and has no recommendation yet."""


def recommend(
    name: Annotated[str | None, typer.Argument(help="One Recommendation, with its samples.")] = None,
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Only this namespace.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show the requests that containers should have, learned from their use.

    Examples:

      koord recommend

      koord recommend web -n shop

      koord recommend web -o json
    """
    learned = {key: state for key, state in wait_for(_states()).items() if state.target or state.conditions}
    existing = _existing()
    # What was learned for an object that is gone is taken back a moment after it.
    known: Known = learned if existing is None else {key: learned.get(key) for key in existing}
    found: Known = {
        key: state
        for key, state in sorted(known.items(), key=lambda item: item[0])
        if key[0] == (namespace or key[0]) and key[1] == (name or key[1])
    }
    if name is not None and not found:
        fail(f"there is no Recommendation {name}" + (f" in namespace {namespace}" if namespace else ""))
    if output in (Format.JSON, Format.YAML):
        documents: list[dict[str, Any]] = [
            {"namespace": key[0], "name": key[1], **(msgspec.to_builtins(state) if state else {})}
            for key, state in found.items()
        ]
        show_document(documents[0] if name is not None and len(documents) == 1 else documents, output)
    elif name is not None:
        for key, state in found.items():
            for line in recommendation_lines(*key, state):
                console.print(line)
    else:
        columns = ("namespace", "name", "target", "mode", "container", "cpu", "memory", "confidence", "condition")
        show_table(columns, recommendation_rows(found), empty="no recommendations found")


def _existing() -> set[tuple[str, str]] | None:
    """Namespace and name of every Recommendation object, or None if no manager answers."""
    base = find_service("manager")
    try:
        answer = ask(f"{base}/v1/objects/{RESOURCE}", timeout=10) if base is not None else None
        if answer is None or not answer.is_success:
            return None
        items: list[dict[str, Any]] = answer.json()["items"]
    except (OSError, HTTPException, ValueError):
        return None
    return {(item["metadata"]["namespace"], item["metadata"]["name"]) for item in items}


async def _states() -> dict[tuple[str, str], RecommendationState]:
    states: dict[tuple[str, str], RecommendationState] = {}
    async with open_log() as log:
        head = await log.bus.events.head()
        async for batch in log.bus.events.history(0, head.last_seq, kinds=(KIND,)):
            for stored in batch:
                event = CATALOGUE.read(stored)
                key = namespaced_from_token(stored.ref.id)
                state = evolve(states.get(key), event, stored) if event is not None else None
                if isinstance(state, RecommendationState):
                    states[key] = state
                elif event is not None:
                    states.pop(key, None)
    return states


def recommendation_rows(found: Known) -> list[list[str]]:
    """One row per container, or one if there are no containers."""
    rows: list[list[str]] = []
    for (namespace, name), state in found.items():
        if state is None:
            rows.append([namespace, name, *("-" for _ in range(6)), NOTHING_YET])
            continue
        condition = ", ".join(
            c.type for c in state.conditions if c.status == "True" and not c.type.endswith("Provided")
        )
        head = [namespace, name, state.target or "-", state.mode]
        rows.extend(
            [
                *head,
                container.name,
                *amount_texts(container.target),
                f"{container.confidence_days:.2f}d",
                condition or "-",
            ]
            for container in state.containers
        )
        if not state.containers:
            rows.append([*head, "-", "-", "-", "-", condition or "-"])
    return rows


def recommendation_lines(namespace: str, name: str, state: RecommendationState | None) -> list[str]:
    """One Recommendation and every number from which it was computed. `state` None: nothing was computed yet."""
    if state is None:
        return [f"{RESOURCE} {namespace}/{name}: {NOTHING_YET}"]
    since = state.updated_at.replace("T", " ")[:19]
    target = state.target or "no target"
    lines = [f"Recommendation {namespace}/{name}: {target}, mode {state.mode}, {state.pods} pods, updated {since}"]
    for condition in state.conditions:
        why = ": ".join(part for part in (condition.reason, condition.message) if part)
        lines.append(f"  {condition.type} {condition.status}" + (f" ({why})" if why else ""))
    for container in state.containers:
        lines += _container_lines(container)
    return lines


def _container_lines(container: ContainerRecommendation) -> list[str]:
    capped = (
        f"   (before the policy's caps {_amounts(container.uncapped_target)})"
        if container.uncapped_target != container.target
        else ""
    )
    span = f"from {container.first_sample_at[:19]} to {container.last_sample_at[:19]}"
    lines = [
        f"  container {container.name}",
        f"    request {_amounts(container.target)}{capped}",
        f"    leave alone from {_amounts(container.lower_bound)} to {_amounts(container.upper_bound)}",
        f"    {container.samples} samples {span}, confidence {container.confidence_days:.2f} days",
    ]
    lines += [
        f"    percentile of {what}: cpu {found.cpu_cores:.3g} cores, memory {gibibytes(int(found.memory_bytes))}"
        for what, found in container.percentiles.items()
    ]
    return lines


def _amounts(amounts: RecommendedAmounts) -> str:
    cpu, memory = amount_texts(amounts)
    return f"cpu {cpu}, memory {memory}"


def amount_texts(amounts: RecommendedAmounts) -> tuple[str, str]:
    """Cpu and memory of a request or bound: `-` without samples of the resource, or without an upper bound yet."""
    return cores(_known(amounts.cpu_milli)), gibibytes(_known(amounts.memory_bytes))


def _known(amount: int) -> int | None:
    return amount if 0 < amount < NO_BOUND else None
