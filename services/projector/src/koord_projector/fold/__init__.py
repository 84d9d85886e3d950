"""The pure part of the projector, without a database: it computes rows from events.

`projection` (one event -> aggregate states and rows) uses `pods` (lives of pods), `figures` (figures of nodes, totals
of the cluster over time) and `lives` (versions of aggregates). `archives` makes the rows of explanations.
"""
