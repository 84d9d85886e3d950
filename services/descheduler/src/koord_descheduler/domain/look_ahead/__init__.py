"""Look ahead: what the cluster is like after the evictions of some rounds, with the scheduler's own placements.

`moves` asks the scheduler where evicted pods land, `proving` judges the moves, and `rounds` plays rounds of a
configuration. `measures` compares the cluster before and after. `dry_run` puts them together. Start with `dry_run`.
"""
