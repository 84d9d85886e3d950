"""Look ahead: simulate the cluster after the evictions of some rounds, with the scheduler's own placements.

`moves` asks the scheduler where evicted pods land. `proving` checks whether moves make the cluster better. `rounds`
simulates rounds of a configuration. `measures` compares the cluster before and after. `dry_run` puts them together.
Start with `dry_run`.
"""
