"""The arguments of every plugin, typed, with their defaults and their validation (scheduler-core spec, 4.1)."""
