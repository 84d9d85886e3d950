"""The fold at work: a session with Postgres, its feed of facts, recovery, and rebuilds."""
