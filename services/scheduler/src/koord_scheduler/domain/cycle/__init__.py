"""One scheduling cycle: attempt, decision and explanation."""
