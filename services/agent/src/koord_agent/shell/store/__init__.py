"""Files that the agent keeps over a restart."""
