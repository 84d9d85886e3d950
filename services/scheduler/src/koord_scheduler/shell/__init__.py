"""The scheduler's connections to the outside: it appends decisions to the log, and serves metrics, pages and logs."""
