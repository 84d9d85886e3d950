"""NRI (Node Resource Interface): which events of the runtime the agent follows, and what it answers. Pure."""
