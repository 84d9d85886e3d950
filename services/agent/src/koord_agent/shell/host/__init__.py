"""The only room of the agent that knows a machine: a real Linux one, or simulated ones with the same face."""
