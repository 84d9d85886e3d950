"""Errors of the event log. This module exists so that naming an error does not import the libraries of the log."""


class LogTrouble(Exception):
    """The log cannot be reached, or it refused a request. The message is a sentence for the user."""
