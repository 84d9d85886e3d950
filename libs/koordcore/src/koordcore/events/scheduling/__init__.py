"""Facts and explanations that schedulers write."""
