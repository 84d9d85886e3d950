"""Learning how much cpu and memory pods really use, and how much of their requests can be given to others."""
