"""Keep the facts of a process on disk while the log is unavailable, and send them when it is available again."""
