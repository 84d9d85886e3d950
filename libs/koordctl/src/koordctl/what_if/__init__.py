"""What-if runs: decide a part of the log again under other settings, and compare the results with the recording."""
