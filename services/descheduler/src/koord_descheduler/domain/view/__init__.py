"""Immutable view of nodes and pods that rounds, plugins and controllers read. Start with `cluster`."""
