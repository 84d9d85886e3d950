"""The state of a scheduler: the folded log with our assumptions on top, and what follows for queue and pods."""
