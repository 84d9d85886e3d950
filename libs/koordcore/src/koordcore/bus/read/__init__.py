"""Reading streams: single reads at the stream's leader, and followers in strict order."""
