"""The agent's side of runtime hooks: the RuntimeHookService, its socket, and its registration with a CRI proxy."""
