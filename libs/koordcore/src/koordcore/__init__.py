"""What every Koordstream service shares: values, protocol, events, state, ports, bus, shell.

Read in this order: `values` (quantities, cpusets) -> `protocol` (the user's vocabulary) -> `events` (the facts) ->
`state` (the cluster as a fold of the facts) -> `ports` (what the shell needs from the world) -> `bus`, `store`,
`service`, `embedded` (adapters and the shell).
"""
