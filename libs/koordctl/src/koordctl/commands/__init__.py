"""One module per group of commands. A command turns words into questions to the services or the log, and prints."""
