"""Facts and explanations that the manager writes."""
