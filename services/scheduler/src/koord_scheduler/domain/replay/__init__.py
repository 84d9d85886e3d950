"""Decisions taken again from the log (recompute, what-if), and snapshots of the state."""
