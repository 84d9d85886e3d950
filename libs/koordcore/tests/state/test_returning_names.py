"""Which aggregates are forgotten with their object, and that a later object may have the name of each of them."""

from typing import Final

from koordcore.events.envelope import RETURNING
from koordcore.state import ClusterState
from support.histories.history import every_kind_once, history

WITH_UID: Final = {"podspec", "pod", "workloadspec", "eviction", "migration", "repack", "reservation"}
"""Kinds whose ids contain a uid. A uid is never used again."""
OF_THE_SCHEDULER: Final = {"node", "gang", "quota", "scheduleexplanation"}
"""Kinds that only the scheduler forgets: `StatusWriter.prune`, `Ledgers.prune`."""


def test_every_name_that_a_fold_forgets_may_return() -> None:
    state, ended = ClusterState(), set[str]()
    for stored in history(every_kind_once()):
        existed = state.get(stored.ref) is not None
        state.apply(stored)
        if existed and state.get(stored.ref) is None:
            ended.add(stored.ref.kind)

    assert (ended - WITH_UID) | OF_THE_SCHEDULER == RETURNING
