"""Arguments of plugins: how they are decoded, and those that several plugins have."""
