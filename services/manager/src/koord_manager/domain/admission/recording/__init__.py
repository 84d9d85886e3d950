"""The parts of an admission decision that are recorded: the object, its patch, its pod templates."""
