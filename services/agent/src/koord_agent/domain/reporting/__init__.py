"""Facts, reports and audit events that the agent publishes."""
