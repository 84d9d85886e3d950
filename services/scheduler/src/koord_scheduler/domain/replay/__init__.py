"""Repeats decisions from the log (recompute, what-if), and takes snapshots of the state."""
