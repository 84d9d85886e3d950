"""One projecting session: what it works on, its feed of facts, its halts, and how it starts again."""
