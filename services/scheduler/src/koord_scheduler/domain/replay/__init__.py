"""Decisions taken again from the log: recompute, what-if, snapshots."""
