"""Pure decisions of the manager.

`view` (the fold with its indexes) -> `apply`, `remove`, `workloads` (documents become mirrored objects) ->
`overcommit`, `publish` (reports become batch resources) -> `nodeslo` (configuration becomes each node's policy) ->
`desired` (what a node's agent is told).
"""
