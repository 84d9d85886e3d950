"""Work that waits to be appended to the log: placements, releases and status writes."""
