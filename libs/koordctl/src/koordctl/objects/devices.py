"""`koord get devices` and `koord top gpu`: devices with their holders, from the projector, and their columns."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec
from koordcore.stories.device_cards import GPU_TYPE, Card
from koordcore.stories.hardware import Owner
from koordcore.values import codec

from koordctl.access.past import pages_of
from koordctl.render.units import gibibytes

GPU_MEMORY: Final = "koordinator.sh/gpu-memory"
DEVICE_COLUMNS: Final = ("node", "type", "minor", "id", "zone", "switch", "state", "given", "functions", "held by")
GPU_COLUMNS: Final = ("node", "gpu", "state", "given", "free", "memory", "memory free", "zone", "switch", "held by")
GpuSort: TypeAlias = Literal["given", "free", "name"]
Row: TypeAlias = Sequence[object]
PAGE = 500


class NodeDevices(msgspec.Struct, frozen=True):
    """The devices of one node and the pods that hold them, as the projector returns them."""

    node: str
    cards: list[Card]
    owners: list[Owner] = []


def device_rows(nodes: Sequence[NodeDevices]) -> list[Row]:
    """One row per device with `DEVICE_COLUMNS`, in the order of the nodes and of their devices."""
    return [
        (
            node.node,
            card.type,
            card.minor,
            card.id or None,
            _known(card.zone),
            card.switch or None,
            card.state,
            f"{card.percent_used}%",
            _functions(card),
            _holders(card, names),
        )
        for node in nodes
        for names in [_names(node.owners)]
        for card in node.cards
    ]


def gpu_rows(nodes: Sequence[NodeDevices], sort: GpuSort) -> list[Row]:
    """One row per GPU with `GPU_COLUMNS`.

    Args:
        sort: `given` or `free`: greatest share first; equal ones, and all with `name`, are in the order of `nodes`.
    """
    found = [(node, card) for node in nodes for card in node.cards if card.type == GPU_TYPE]
    if sort != "name":
        found.sort(key=lambda each: -(each[1].percent_used if sort == "given" else each[1].percent_free))
    return [
        (
            node.node,
            card.minor,
            card.state,
            f"{card.percent_used}%",
            f"{card.percent_free}%",
            gibibytes(card.total.get(GPU_MEMORY)),
            _memory_free(card),
            _known(card.zone),
            card.switch or None,
            _holders(card, _names(node.owners)),
        )
        for node, card in found
    ]


def gpu_summary(nodes: Sequence[NodeDevices]) -> str:
    """One sentence about all healthy GPUs: how many are given completely, partly, and not at all."""
    cards = [card for node in nodes for card in node.cards if card.type == GPU_TYPE]
    healthy = [card for card in cards if card.state == "healthy"]
    free = sum(card.percent_used == 0 for card in healthy)
    full = sum(card.percent_free == 0 for card in healthy)
    partly = len(healthy) - free - full
    stranded = sum(card.percent_free for card in healthy if card.percent_used)
    broken = f", {len(cards) - len(healthy)} not healthy" if len(cards) > len(healthy) else ""
    return (
        f"{len(healthy)} GPUs: {free} free, {full} given completely, {partly} given in part"
        f" ({stranded / 100:.10g} GPUs free on these){broken}"
    )


def _known(zone: int) -> int | None:
    return zone if zone >= 0 else None


def _functions(card: Card) -> str | None:
    if not card.functions:
        return None
    return f"{sum(bool(function.owners) for function in card.functions)}/{len(card.functions)}"


def _names(owners: Sequence[Owner]) -> Mapping[str, str]:
    return {owner.uid: f"{owner.namespace}/{owner.name}" for owner in owners}


def _holders(card: Card, names: Mapping[str, str]) -> str | None:
    return ", ".join(f"{names.get(share.uid, share.uid)} {share.percent}%" for share in card.shares) or None


def _memory_free(card: Card) -> str:
    total = card.total.get(GPU_MEMORY)
    if total is None or card.state != "healthy":
        return gibibytes(None)
    used = sum(share.amounts.get(GPU_MEMORY, total * share.percent // 100) for share in card.shares)
    return gibibytes(max(0, total - used))


def devices_of(node: str | None, as_of: str | None) -> list[NodeDevices]:
    """Return the nodes that have a Device object, ordered by name, now or at a past moment.

    If the projector does not accept the moment, end the command.

    Args:
        node: Only this node; None for all.
        as_of: Position of the log, or RFC 3339 time; None for the present.
    """
    pages = pages_of("/api/devices", as_of, limit=PAGE)
    found = [each for page in pages for each in codec.convert(page["nodes"], list[NodeDevices])]
    return [each for each in found if node in (None, each.node)]
