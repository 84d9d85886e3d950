"""Migrations: jobs that move one pod each, and the limits on how many run at the same time.

`jobs` has the jobs in flight, `limits` the limits on them, `object_limiter` the limits over time.
"""
