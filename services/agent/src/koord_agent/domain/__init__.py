"""The pure part of the agent: values, and functions that decide."""
