"""The shell that every service shares: settings, lifecycle, telemetry, HTTP, leadership."""
