"""Hook servers: how they register, which one is asked, and how."""
