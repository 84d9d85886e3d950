"""Rules about pods that may be evicted: base filter, limits per workload, and the rules of the upstream evictor."""
