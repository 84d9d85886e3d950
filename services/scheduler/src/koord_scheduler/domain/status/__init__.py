"""Facts other than placements: what schedulers have published, and what they write next."""
