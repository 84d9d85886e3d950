"""One file per group of commands; each turns words into questions to the services or to the log, and prints."""
