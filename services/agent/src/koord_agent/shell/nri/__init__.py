"""NRI plugin of the agent: ttrpc over the socket of the container runtime. `plugin` is its main loop."""
