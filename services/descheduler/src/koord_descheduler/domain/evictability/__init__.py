"""Which pods may be evicted: the base filter, the limits per workload, and the rules of the upstream evictor."""
