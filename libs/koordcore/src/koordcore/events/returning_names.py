"""The kinds of aggregates whose ids are names that a later object may have again.

An id of another kind contains a uid, so it is not used again.
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
        "drain",
        "draingroup",
        "drift",
        "node",
        "gang",
        "quota",
        "scheduleexplanation",
    )
)
"""A fold drops such an aggregate when its object is deleted.

The next fact of the name then expects position 0, although the log has facts of it. The module
`koordcore.bus.write.expectations` says when the log stores that fact.
"""
