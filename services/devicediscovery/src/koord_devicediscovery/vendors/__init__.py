"""One module for each vendor: how its cards are recognised, which commands its tool gets, and how they are read."""
