"""The HTTP server of a process."""
