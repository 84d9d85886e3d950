"""What the projector makes of the facts, as pure code: rows from events, no database.

`projection` (one event -> aggregate states and rows) uses `pods` (lives of pods), `nodes` (figures of nodes) and
`series` (totals of the cluster over time); `timeline` and `pending` answer questions from what was stored.
"""
