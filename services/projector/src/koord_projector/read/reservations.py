"""Reservations as of a moment, with the pods that use them."""

from collections.abc import Iterable, Mapping
from typing import Annotated, TypeVar, cast

import msgspec
from koordcore.events.envelope import AggregateRef, name_from_token, name_token
from koordcore.events.objects import custom_ref
from koordcore.protocol.reservations import PLURAL
from koordcore.state.aggregates import CustomObjectState, NodeLedger, PodState, ReservationState
from koordcore.state.fold import AggregateState
from koordcore.state.reservations import node_of_reservation, reservation_status
from koordcore.stories.reservations import ReservationView, reservation_view
from sqlalchemy.ext.asyncio import AsyncConnection

from koord_projector.read.endpoint import At, Query, Reading, Text, about
from koord_projector.read.moments import Moment, ids_with_prefix, states_at

_PREFIX = f"{PLURAL}="
State = TypeVar("State", bound=AggregateState)


class ReservationsQuery(Query, frozen=True, kw_only=True):
    name: Annotated[Text, about("Only the Reservation with this name.")] = ""
    after: Annotated[Text, about("Only Reservations after this one.")] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=500), about("Reservations per page.")] = 200
    at: At = ""


class ReservationsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A page of Reservations at one moment, by name.

    Attributes:
        after: Value of the parameter `after` for the next page; null on the last one.
    """

    moment: Moment
    reservations: list[ReservationView]
    after: str | None


async def read_reservations(reading: Reading, query: ReservationsQuery) -> ReservationsAnswer:
    """Reservations come in the order of subject tokens."""
    connection, moment, name, after, limit = reading.connection, reading.moment, query.name, query.after, query.limit
    last = f"{_PREFIX}{name_token(after)}" if after else _PREFIX
    if name:
        ids = [custom_ref(PLURAL, "", name).id]
    else:
        ids = await ids_with_prefix(connection, moment, AggregateRef("customspec", _PREFIX), after=last, limit=limit)
    stored = await states_at(connection, moment, "customspec", ids)
    documents = [document for id_ in ids if (document := _object(stored.get(id_))) is not None]
    return ReservationsAnswer(
        moment=moment,
        reservations=await _views(connection, moment, documents),
        after=name_from_token(ids[-1].removeprefix(_PREFIX)) if len(ids) == limit and not name else None,
    )


async def _views(
    connection: AsyncConnection, moment: Moment, documents: Iterable[Mapping[str, object]]
) -> list[ReservationView]:
    found = {_uid(document): document for document in documents}
    placed = _of_type(await states_at(connection, moment, "pod", list(found)), PodState)
    ended = _of_type(await states_at(connection, moment, "reservation", list(found)), ReservationState)
    nodes = {uid: node_of_reservation(uid, placed.get(uid), ended.get(uid)) for uid in found}
    tokens = sorted({name_token(node) for node in nodes.values() if node})
    ledgers = _of_type(await states_at(connection, moment, "node", tokens), NodeLedger)
    return [
        reservation_view(
            document,
            reservation_status(uid, placed.get(uid), ended.get(uid), ledgers.get(name_token(nodes[uid]))),
        )
        for uid, document in found.items()
    ]


def _of_type(states: Mapping[str, AggregateState], kind: type[State]) -> dict[str, State]:
    return {id_: state for id_, state in states.items() if isinstance(state, kind)}


def _uid(document: Mapping[str, object]) -> str:
    metadata = document.get("metadata")
    return str(cast("Mapping[str, object]", metadata).get("uid", "")) if isinstance(metadata, Mapping) else ""


def _object(state: AggregateState | None) -> Mapping[str, object] | None:
    return state.object if isinstance(state, CustomObjectState) else None
