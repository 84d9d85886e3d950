"""Effects of the projector: Postgres (`tables`, `copytext`, `writer`, `loader`, `migrations`), the read API, the dashboard."""
