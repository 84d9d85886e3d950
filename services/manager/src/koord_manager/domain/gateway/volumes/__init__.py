"""The claims of placed pods: what is written to bind them, and which pods wait for which claim."""
