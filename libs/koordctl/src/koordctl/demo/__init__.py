"""`koord demo`: a real trace placed on a live cluster, every invariant recomputed from the log.

`trace` (CSV -> manifests) -> `arrivals` (when each pod is sent) -> `run` (starts the stack, sends, waits) ->
`invariants` (what the log says really happened) -> `summary` (the table and summary.json).
"""
