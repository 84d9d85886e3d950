"""Settings of a service: files, environment, flags and feature gates."""
