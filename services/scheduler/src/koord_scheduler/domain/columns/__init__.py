"""Node properties as arrays: one position per node, with journals and indexes that follow every change."""
