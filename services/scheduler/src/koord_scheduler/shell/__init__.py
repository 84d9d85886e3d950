"""Effects of the scheduler: it follows the log, appends to it, and answers over HTTP; no decision is taken here."""
