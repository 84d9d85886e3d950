"""NRI (Node Resource Interface): the events of the runtime that the agent follows, and its answers. Pure."""
