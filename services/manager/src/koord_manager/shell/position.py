"""Answers what the fold's hash was at an exact position: how `koord verify` compares folds that are still moving."""

import asyncio

from koord_manager.domain.view import ManagerView


class StateAt:
    """Waiters for positions ahead of the fold; the fold's owner calls `passed` after every event."""

    def __init__(self, view: ManagerView) -> None:
        self._view = view
        self._waiting: dict[int, list[asyncio.Future[str]]] = {}

    async def hash_at(self, position: int) -> str | None:
        """The hash at the position; waits while the fold is before it; None when the fold has passed it."""
        current = self._view.state.position
        if position == current:
            return self._view.state.hash()
        if position < current:
            return None
        waiter: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(position, []).append(waiter)
        return await waiter

    def passed(self) -> None:
        """To be called when the fold has moved by one event."""
        if not self._waiting:
            return
        for waiter in self._waiting.pop(self._view.state.position, ()):
            if not waiter.done():
                waiter.set_result(self._view.state.hash())
