"""Shell code that every service shares: settings, lifecycle, telemetry, HTTP, leadership."""
