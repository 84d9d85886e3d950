"""What-if runs: a part of the log is decided again under other settings and compared with the record."""
