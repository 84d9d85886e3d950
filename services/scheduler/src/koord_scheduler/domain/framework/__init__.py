"""What a plugin may be: the protocols of all extension points, and the profile that lists the plugins."""
