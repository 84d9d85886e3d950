"""All endpoints and work queues. The document `schemas/asyncapi.yaml` contains them.

A new endpoint is one entry here, one handler in its service (`koordcore.bus.work.endpoints`) and, if another NATS user
than the operator sends requests, one entry in `koordcore.bus.setup.manifest`.
"""

from typing import Any, Final

import msgspec

from koordcore.requests.comparing import CompareRequest, Comparison
from koordcore.requests.descheduling import (
    AbortMigration,
    DryRunAnswer,
    DryRunNote,
    DryRunRequest,
    RunRound,
    StartDrain,
)
from koordcore.requests.endpoint import Endpoint, WorkQueue
from koordcore.requests.fit import FitAnswer, FitRequest
from koordcore.requests.objects import ChangeAnswer, ChangeRequest


class StateHashRequest(msgspec.Struct, frozen=True):
    """Request for the hash of the state that a service has folded. It has no fields."""


class StateHash(msgspec.Struct, frozen=True):
    """Answer: the hash of the whole state of a service at one position.

    Folds of one log have equal hashes at equal positions.
    """

    position: int  # Sequence of the last folded event
    # At this position, 32 hex digits: `koordcore.state.ClusterState.hash()`; of the scheduler, that of its own state,
    # with which it places pods.
    hash: str
    trouble: str = ""  # Why the fold has stopped; "" while it runs


PROJECTOR_COMPARE: Final = Endpoint(
    service="projector",
    verb="compare",
    request=CompareRequest,
    answer=Comparison,
    summary="Compare the tables with the log, for `koord verify`. Repeated until it is done. Nothing is changed.",
)
PROJECTOR_STATE_HASH: Final = Endpoint(
    service="projector",
    verb="state_hash",
    request=StateHashRequest,
    answer=StateHash,
    summary="Hash of the projector's rows, for `koord verify`.",
)

SCHEDULER_STATE_HASH: Final = Endpoint(
    service="scheduler",
    verb="state_hash",
    request=StateHashRequest,
    answer=StateHash,
    summary="Hash of the state with which the leading scheduler places pods, for `koord verify`.",
)

SCHEDULER_FIT: Final = Endpoint(
    service="scheduler",
    verb="fit",
    request=FitRequest,
    answer=FitAnswer,
    summary="Where would these pods land now, and what runs out first? For `koord fit`. Nothing is changed.",
    prefers_standby=True,
    is_audited=True,
    is_dry_run=True,
)

MANAGER_STATE_HASH: Final = Endpoint(
    service="manager",
    verb="state_hash",
    request=StateHashRequest,
    answer=StateHash,
    summary="Hash of the leading manager's fold, for `koord verify` without an address of the manager.",
)

MANAGER_CHANGE_OBJECTS: Final = Endpoint(
    service="manager",
    verb="change_objects",
    request=ChangeRequest,
    answer=ChangeAnswer,
    summary="Create, delete and patch objects, open and close nodes. The leading manager is their only writer.",
    is_audited=True,
)

DESCHEDULER_DRY_RUN: Final = Endpoint(
    service="descheduler",
    verb="dry_run",
    request=DryRunRequest,
    answer=DryRunAnswer,
    summary="Which pods would rounds move, and where would the scheduler place them? Nothing is changed.",
    is_audited=True,
    is_dry_run=True,
)

DESCHEDULER_RUN_ROUND: Final = WorkQueue(
    service="descheduler", verb="run_round", request=RunRound, summary="Run a round of the descheduler now."
)
DESCHEDULER_DRAIN: Final = WorkQueue(
    service="descheduler",
    verb="drain",
    request=StartDrain,
    summary="Empty a node: create its DrainNode, or confirm the one that exists.",
)
DESCHEDULER_ABORT_MIGRATION: Final = WorkQueue(
    service="descheduler",
    verb="abort_migration",
    request=AbortMigration,
    summary="Delete a migration job and its Reservation.",
)

DESCHEDULER_NOTE_DRY_RUN: Final = WorkQueue(
    service="descheduler",
    verb="note_dry_run",
    request=DryRunNote,
    summary="Record in the audit that a user has simulated rounds with a configuration.",
)

ENDPOINTS: Final[tuple[Endpoint[Any, Any], ...]] = (
    PROJECTOR_STATE_HASH,
    PROJECTOR_COMPARE,
    SCHEDULER_STATE_HASH,
    SCHEDULER_FIT,
    MANAGER_STATE_HASH,
    MANAGER_CHANGE_OBJECTS,
    DESCHEDULER_DRY_RUN,
)
# Work queues with a worker. Each has a durable consumer (`koordcore.bus.setup.bootstrap`). A new one also needs its
# worker (`koordcore.bus.work.effect_worker`) in a service, and the right `works_on` in `koordcore.bus.setup.manifest`.
WORK_QUEUES: Final[tuple[WorkQueue[Any], ...]] = (
    DESCHEDULER_RUN_ROUND,
    DESCHEDULER_DRAIN,
    DESCHEDULER_ABORT_MIGRATION,
    DESCHEDULER_NOTE_DRY_RUN,
)
