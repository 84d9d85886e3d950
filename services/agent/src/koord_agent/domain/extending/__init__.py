"""Extension points for installed packages, their registry, and their failures."""
