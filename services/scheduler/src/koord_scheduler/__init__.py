"""The scheduler: places pods on nodes and explains every attempt."""
