"""Facts of a process that must work without the log: they wait on disk until the log has them."""
