"""Workers on durable consumers, and the dead-letter queue."""
