"""Facts, reports and audit events of the agent."""
