"""Extension points for installed packages, their registry, and the handling of their failures."""
