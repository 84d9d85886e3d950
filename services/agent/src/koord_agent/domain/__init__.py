"""The pure half of the agent: values, and the functions that decide on them."""
