"""The log: facts (`koord events`), streams (`koord bus`), archive, mirror, and the health of an installation."""
