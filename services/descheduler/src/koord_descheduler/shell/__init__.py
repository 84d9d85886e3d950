"""Effects of the descheduler: the fold, usage reports, rounds in a thread, appends, metrics, pages."""
