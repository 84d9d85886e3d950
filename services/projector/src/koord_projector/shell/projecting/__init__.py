"""A projecting session: its context, its feed of facts, halts, and recovery."""
