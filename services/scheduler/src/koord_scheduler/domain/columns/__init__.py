"""Properties of all nodes as arrays with one position per node, and journals and indexes that follow every change."""
