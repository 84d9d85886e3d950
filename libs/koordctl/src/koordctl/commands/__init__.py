"""The commands of `koord`, one module per group. A command asks the services or the log and prints the answer."""
