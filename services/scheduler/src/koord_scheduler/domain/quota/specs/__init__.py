"""What quota objects and pods state, as values."""
