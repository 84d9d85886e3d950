"""One scheduling cycle: attempt, decision, explanation, and what follows from the log's answer."""
