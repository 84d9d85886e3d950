"""A whole cluster is decided without holding up whoever else waits for the loop."""

import asyncio
from collections.abc import Sequence

from koord_manager.cycle import NODES_AT_ONCE, in_slices
from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.objects.mirror import NodeSpecDeleted


async def test_others_are_let_in_between_and_every_node_is_decided_once_in_order() -> None:
    nodes = [f"n{number:03}" for number in range(5 * NODES_AT_ONCE + 1)]
    turns = 0

    async def admission() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def decide(some: Sequence[str]) -> list[Draft]:
        assert len(some) <= NODES_AT_ONCE
        return [Draft(AggregateRef("nodespec", node), NodeSpecDeleted(name=node), 0) for node in some]

    other = asyncio.create_task(admission())
    drafts = await in_slices(nodes, decide)
    other.cancel()
    assert [draft.ref.id for draft in drafts] == nodes
    assert turns >= 5


async def test_nothing_is_decided_of_no_node() -> None:
    assert await in_slices([], lambda _: [Draft(AggregateRef("nodespec", "n"), NodeSpecDeleted(name="n"), 0)]) == []
