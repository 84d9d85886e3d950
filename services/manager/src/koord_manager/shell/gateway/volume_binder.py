"""Bind the claims of a placed pod before the pod itself: read, write the scheduler's choice, wait."""

from collections.abc import Awaitable, Callable
from datetime import datetime

from koordcore.service.failpoints import failpoint
from koordcore.values.allocation import ClaimBinding

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway import claim_steps
from koord_manager.domain.gateway.binding import Binding, Later, Settled
from koord_manager.domain.gateway.requests import Request
from koord_manager.shell.gateway.api import ApiResponse

Send = Callable[[Request], Awaitable[ApiResponse]]


class VolumeBinder:
    """Binds the claims of placed pods to the volumes or nodes that the scheduler chose.

    Args:
        send: Sends a request. A response without an answer has status 0.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._written: dict[str, tuple[int, set[str]]] = {}

    async def bind(self, view: ManagerView, binding: Binding, now: datetime) -> Settled | Later | None:
        """Take the next step for each claim of a binding.

        Returns:
            None if all claims are bound, `Later` if they have to be looked at again, `Settled` if the pod cannot be
            bound to its node.
        """
        is_waiting = False
        for wanted in binding.claims:
            step = claim_steps.known_bound(view, binding, wanted) or await self._next_step(view, binding, wanted)
            if isinstance(step, Settled):
                return step
            is_waiting = is_waiting or step is not claim_steps.Progress.BOUND
        if is_waiting and claim_steps.is_overdue(binding, now):
            return claim_steps.failed("context deadline exceeded")
        return Later() if is_waiting else None

    def forget(self, uid: str) -> None:
        """Delete the record of writes for a pod, because its binding has an outcome or is not pending any more."""
        self._written.pop(uid, None)

    async def _next_step(self, view: ManagerView, binding: Binding, wanted: ClaimBinding) -> claim_steps.Step:
        """Read the claim and the chosen volume, and write the choice if it is missing."""
        is_written = wanted.claim in self._written_for(binding)
        found = await self._send(claim_steps.claim_request(wanted))
        step = claim_steps.step_of_claim(view, binding, wanted, found.status, found.body, is_written=is_written)
        if isinstance(step, claim_steps.LookAtVolume):
            volume = await self._send(claim_steps.volume_request(wanted))
            step = claim_steps.step_of_volume(wanted, step.claim, volume.status, volume.body, is_written=is_written)
        if not isinstance(step, Request):
            return step
        failpoint("claim_decided_before_request")
        answer = await self._send(step)
        after = claim_steps.step_after_write(answer.status, answer.message())
        if answer.ok:
            self._written_for(binding).add(wanted.claim)
        return after

    def _written_for(self, binding: Binding) -> set[str]:
        placement, claims = self._written.get(binding.uid, (0, set[str]()))
        if placement != binding.placement:
            placement, claims = binding.placement, set[str]()
            self._written[binding.uid] = placement, claims
        return claims
