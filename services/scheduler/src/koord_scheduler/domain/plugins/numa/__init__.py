"""NodeNUMAResource: CPUs and NUMA zones as filter, score and reservation."""
