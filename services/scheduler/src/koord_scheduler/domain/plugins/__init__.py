"""Filters and scores, one file each; `interface` says what they are, `profile` (one level up) which are used."""
