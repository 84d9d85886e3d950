"""What goes wrong with the log, apart from the libraries that reach it: told without loading them."""


class LogTrouble(Exception):
    """The log cannot be reached or refuses; the message is a sentence for the user."""
