"""Lines of a log on a terminal."""

import logging

from dralab.cli._terminal import escaped


class LogFormatter(logging.Formatter):
    """Lines for people: what others have written in them is escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as text."""
        return escaped(super().format(record))


def escape_unconfigured() -> None:
    """Escape also what is logged before, or without, a command that sets up logging."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(LogFormatter())
