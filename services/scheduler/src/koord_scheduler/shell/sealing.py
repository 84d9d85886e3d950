"""Turns the drafts of decisions into events that can be appended: adds their ids, causes and traces.

    PodPlaced            its cause is the event that made the attempt worthwhile: the submission, or an event that
                         helped the waiting pod
    NodeResourcesTaken   its cause is the first PodPlaced of the same append

An id is computed from the cause, so a decision that is repeated after a crash gets the same id. Events of a node with
the same first pod differ in their number of pods. The log's adapter compares the contents of events with the same id.

Source: event-bus spec, 3.1
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, NewEvent, Origin, seal
from koordcore.events.gang import GangPlaced
from koordcore.ports.eventlog import MOST_AT_ONCE
from koordcore.service.telemetry.tracing import TraceContext, Tracer, parse_traceparent
from koordcore.values import codec

from koord_scheduler.domain.loop.commit.status_writes import TakenStatusWrite
from koord_scheduler.domain.loop.commit.work import Placement, Reallocation, Release
from koord_scheduler.domain.loop.state.state import NodeDrafts

_INDEX_OF: Final = {Placement: 0, Release: 1, Reallocation: 2}
"""Numbers that make the ids of events with the same cause and pod different."""


class Sealed(NamedTuple):
    """The complete events of one node's decisions in a batch, ready to be appended."""

    drafts: NodeDrafts  # The drafts that the events were made of
    pods: list[NewEvent]  # The events of the pods, in the order of the decisions
    node: NewEvent  # The event of the node's ledger
    # Trace context and parent span id of each pod's placement; these spans end when the log has answered.
    spans: list[tuple[TraceContext, str | None]]

    def events(self) -> list[NewEvent]:
        """Return the events in the order of the append: the pods, then their node."""
        return [*self.pods, self.node]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Events that the log stores all or none: the decisions on one node, or a gang with all its nodes."""

    nodes: list[Sealed]  # The sealed decisions on each node
    gang: NewEvent | None = None  # The gang's own event; None for the decisions on a single node

    def __len__(self) -> int:
        return sum(len(node.pods) + 1 for node in self.nodes) + (self.gang is not None)

    def gang_id(self) -> str:
        """Return `namespace/name` of the gang; "" if there is none."""
        if self.gang is None:
            return ""
        placed = codec.decode(self.gang.body, GangPlaced)
        return f"{placed.namespace}/{placed.name}"

    def events(self) -> list[NewEvent]:
        """Return the events in the order of the append: node by node, then the gang."""
        events = [event for node in self.nodes for event in node.events()]
        return events if self.gang is None else [*events, self.gang]


def fitting(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Group parts, in their order, into lists whose events fit into one append each. A list has at most one part about
    each gang. A part that is larger than one append is alone in its list.
    """
    together: list[Part] = []
    gangs: set[AggregateRef] = set()
    room = MOST_AT_ONCE
    for part in parts:
        if together and (len(part) > room or (part.gang is not None and part.gang.ref in gangs)):
            yield together
            together, gangs, room = [], set[AggregateRef](), MOST_AT_ONCE
        together.append(part)
        room -= len(part)
        if part.gang is not None:
            gangs.add(part.gang.ref)
    if together:
        yield together


class Header(NamedTuple):
    """Values that all events of one batch share."""

    actor: str  # Name of the instance that appends
    epoch: int  # Fencing number of its term as leader
    occurred_at: str  # RFC 3339 time of the append
    based_on: int  # Position in the log up to which it was folded when the batch was sealed


def seal_work(drafts: NodeDrafts, header: Header, tracer: Tracer) -> Sealed:
    """Return the complete events (id, cause, trace, time) for the placements or releases on one node. `header`: values
    that all events of the batch share.
    """
    pods: list[NewEvent] = []
    spans: list[tuple[TraceContext, str | None]] = []
    for item, draft in zip(drafts.work.items, drafts.pods, strict=True):
        parent = parse_traceparent(item.traceparent, item.tracestate)
        # A trace that nobody records is passed on as it came: ids for new places in it would be made in vain.
        context = parent if parent is not None and not tracer.exports else tracer.child(parent)
        spans.append((context, parent.span_id if parent is not None else None))
        index = _INDEX_OF[type(item)]
        pods.append(_seal(draft, header, item.trigger, item.uid, index, context.traceparent, context.state))
    context, uid = spans[0][0], drafts.work.items[0].uid
    node = _seal(drafts.node, header, pods[0].event_id, uid, len(pods), context.traceparent, context.state)
    return Sealed(drafts, pods, node, spans)


def seal_gang(draft: Draft, members: Sequence[Sealed], header: Header) -> NewEvent:
    """Return the complete event that a gang was placed. Its cause is the placement of the first member."""
    first = members[0].pods[0]
    return _seal(draft, header, first.event_id, draft.ref.id, 0)


def seal_notice(taken: TakenStatusWrite, header: Header) -> list[NewEvent]:
    """Return the complete events of a status write (a nomination or a status) with the cause of the write."""
    write = taken.write
    return [
        _seal(
            draft,
            header,
            f"{write.trigger}/{draft.ref}/{draft.expected_last}",
            write.uid or draft.ref.id,
            index,
            write.traceparent,
            write.tracestate,
        )
        for index, draft in enumerate(taken.drafts)
    ]


def _seal(
    draft: Draft,
    header: Header,
    cause: str,
    correlation: str,
    index: int,
    traceparent: str = "",
    tracestate: str = "",
) -> NewEvent:
    origin = Origin(
        causation_id=cause,
        correlation_id=correlation,
        actor=header.actor,
        occurred_at=header.occurred_at,
        epoch=header.epoch,
        based_on=header.based_on,
        traceparent=traceparent,
        tracestate=tracestate,
    )
    return seal(draft, origin, index, CATALOGUE.of(type(draft.event)).schema)
