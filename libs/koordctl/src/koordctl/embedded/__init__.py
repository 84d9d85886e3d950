"""The embedded stack: its processes, its nodes."""
