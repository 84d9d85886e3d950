"""What exists on the server: streams, consumers, users and their permissions."""
