"""GPU fragmentation: how much of a node's free GPU capacity the expected pods cannot use, and scores that lower it."""
