"""Code that every Koordstream service shares: values, protocol, events, state, ports, bus, service.

Read in this order: `values` (quantities, cpusets) -> `protocol` (names and rules of Kubernetes and Koordinator) ->
`events` (facts) -> `state` (the cluster as a fold of the facts) -> `ports` (interfaces of the shell) -> `bus`,
`service`, `embedded` (adapters and the shell).
"""
