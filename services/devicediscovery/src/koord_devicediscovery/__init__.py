"""Device discovery: finds accelerators with the tools of their vendors, and describes them in a file for the agent."""
