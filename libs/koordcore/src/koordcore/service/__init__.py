"""Code that runs every service: settings, life cycle, logs, metrics, traces, HTTP, leader election."""
