"""Facts of the descheduler: drains of nodes, and migrations of pods."""
