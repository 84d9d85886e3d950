"""Access to machines: a real Linux machine, or simulated ones behind the same protocol."""
