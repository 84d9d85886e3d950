"""All endpoints and work queues. The document `schemas/asyncapi.yaml` contains them.

A new endpoint is one entry here, one handler in its service (`koordcore.bus.work.endpoints`) and, if another principal
than the operator asks, one entry in `koordcore.bus.setup.manifest`.
"""

from typing import Any, Final

import msgspec

from koordcore.requests.endpoint import Endpoint, WorkQueue


class StateHashRequest(msgspec.Struct, frozen=True):
    """Request for the hash of the current state of a service."""


class StateHash(msgspec.Struct, frozen=True):
    """Hash of the whole state at one position, equal for every fold of the same log.

    Attributes:
        position: Position of the last folded event.
        hash: `koordcore.state.ClusterState.hash()` at this position.
    """

    position: int
    hash: str


PROJECTOR_STATE_HASH: Final = Endpoint(
    service="projector",
    verb="state_hash",
    request=StateHashRequest,
    answer=StateHash,
    summary="Hash of the projector's rows, for `koord verify`.",
)

ENDPOINTS: Final[tuple[Endpoint[Any, Any], ...]] = (PROJECTOR_STATE_HASH,)
WORK_QUEUES: Final[tuple[WorkQueue[Any], ...]] = ()
"""Work queues with a worker. A new one also needs its worker (`koordcore.bus.work.effect_worker`) in a service, a
durable consumer (`koordcore.bus.setup.consumers`), and the right `works_on` in `koordcore.bus.setup.manifest`."""
