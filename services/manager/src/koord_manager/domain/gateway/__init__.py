"""Decide, as pure functions, what the gateway to Kubernetes mirrors and writes.

`mirror` turns an object of the API server into a fact. `pending_writes` finds what has to be written, and `binding`,
`eviction`, `node_writes`, `objects` and `status_writes` decide the requests. `drift` compares the fold with the API
server. `genesis` begins a log from the objects of a cluster.
"""
