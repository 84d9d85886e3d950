"""The state of a scheduler: the folded log with our assumptions on top, and the effects on queue and pods."""
