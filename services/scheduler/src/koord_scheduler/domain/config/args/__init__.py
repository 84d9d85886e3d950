"""The typed arguments of every plugin, with defaults and validation (scheduler-core spec, 4.1)."""
