"""General value types: quantities, resource lists, CPU lists, durations, allocations. Pure functions."""
