"""The events: facts that are written to the log, and observations and explanations in other streams.

`envelope` (headers, references, drafts) -> `registry` (type name -> model, schema version, upcasters) -> one module per
aggregate kind (`scheduling.pod`, `objects.mirror` ...). `catalogue` imports them all, so that the registry is complete.
"""

from koordcore.events.catalogue import CATALOGUE

__all__ = ["CATALOGUE"]
