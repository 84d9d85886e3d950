"""The pure part of the projector, without a database: it computes rows from events.

`projection` (one event -> aggregate states and rows) uses `pods` (lives of pods), `nodes` (figures of nodes) and
`series` (totals of the cluster over time); `timeline` and `pending` answer questions from stored rows.
"""
