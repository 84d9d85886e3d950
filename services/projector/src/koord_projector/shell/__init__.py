"""Effects of the projector: Postgres (`tables`, `copytext`, `writer`, `loader`, `migrations`), read API, dashboard."""
