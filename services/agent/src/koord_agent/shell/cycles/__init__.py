"""What the main loop does for all nodes of the process."""
