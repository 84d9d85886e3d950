"""HTTP routes of the agent."""
