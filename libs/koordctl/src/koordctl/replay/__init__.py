"""States rebuilt from the log: `koord replay`, `koord verify`, and decisions made again."""
