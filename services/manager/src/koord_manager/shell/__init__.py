"""Effects of the manager: the log, HTTP, the API server, metrics."""
