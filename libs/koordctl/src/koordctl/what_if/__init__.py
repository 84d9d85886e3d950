"""What-if runs: a window of the log decided again under other settings."""
