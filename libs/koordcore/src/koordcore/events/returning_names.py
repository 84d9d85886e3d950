"""The kinds of aggregates that are forgotten with their object, and whose id a later object may have again.

If somebody deletes the node `worker-1` and later registers another node with this name, the facts about both nodes
belong to the aggregate `nodespec.worker-1`. Of the other kinds, the id contains the uid of the object, which is never
used again, or the aggregate is never forgotten.
"""

from typing import Final

RETURNING: Final = frozenset(
    (
        "nodespec",
        "namespace",
        "priorityclass",
        "config",
        "customspec",
        "recommendation",
        "quotaprofile",
        "drain",
        "draingroup",
        "drift",
        "node",
        "gang",
        "quota",
        "scheduleexplanation",
    )
)
"""Kinds of aggregates that a service drops from its memory when their object is deleted.

With such an aggregate, the service also forgets the position of its last fact. If it later appends a fact about a new
object of the same name, it expects position 0, which means "no fact yet". The log still has the facts about the deleted
object. `koordcore.bus.write.expectations` says when the log stores the new fact all the same.

Every service drops the kinds up to `drift`, at the fact that ends the object. Only the scheduler drops the last four,
many at a time.
"""
