"""Facts and observations that node agents write."""
