"""`koord explain reservation`: the life of a Reservation, the pods that use it, and pending pods that do not."""

from typing import Annotated

import msgspec
import typer
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef
from koordcore.events.pod import PodPlaced
from koordcore.stories.reservations import ReservationView
from koordcore.values import codec

from koordctl.access.log import open_log, wait_for, warn_of_dropped
from koordctl.access.past import AsOf
from koordctl.node.hardware import given_hardware
from koordctl.objects.reservations import reservations_of
from koordctl.pod.lines import event_lines
from koordctl.pod.story import PodStory, explained_pod, split_amounts
from koordctl.render.console import Line
from koordctl.render.output import Format, Output, fail, show_story
from koordctl.render.units import time_text
from koordctl.reservation.lines import UsedAmounts, reservation_lines


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
    from koordctl.reservation.claims import pending_claims

    claims = pending_claims(view, as_of)
    document = codec.to_builtins({"reservation": view, "uses": uses, "claims": claims, "life": life.moments})
    lines = [*map(Line, reservation_lines(view, uses, claims, label)), *event_lines(life)]
    show_story(document, lines, output)


async def _life_of(view: ReservationView, until: int | None) -> tuple[PodStory, list[UsedAmounts]]:
    """The events in the life of a Reservation, and the amounts that each pod takes from it and from the node."""
    async with open_log() as log:
        told = await log.explanations.of_subject(log.names.subject("explanations", AggregateRef("pod", view.uid)))
        told = [event for event in told if until is None or event.based_on <= until]
        own = await log.facts_of("pod", view.uid, upto=until)
        await warn_of_dropped(log, "this Reservation", own)
        placed = [event for event in own if event.type == PodPlaced.__name__]
        life = explained_pod(view.uid, own, told, hardware=await given_hardware(log.bus.events, placed))
        # the annotation of a pod that uses a Reservation is not written for the Reservation itself
        life = msgspec.structs.replace(
            life, moments=[msgspec.structs.replace(each, annotations={}) for each in life.moments]
        )
        uses: list[UsedAmounts] = []
        for owner in view.owners:
            placed = [
                event for event in await log.facts_of("pod", owner.uid, upto=until) if event.type == PodPlaced.__name__
            ]
            event = CATALOGUE.read(placed[-1]) if placed else None
            if isinstance(event, PodPlaced):
                given, rest = split_amounts(event.allocation, event.requests)
                pod = f"{owner.namespace}/{owner.name}"
                uses.append(UsedAmounts(pod=pod, from_reservation=given, from_node=rest))
        return life, uses
