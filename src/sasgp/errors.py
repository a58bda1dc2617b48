"""What a user can put right. The message says what was expected, what came, and what to do."""

__all__ = ["InputError"]


class InputError(ValueError):
    """Bad input: data, settings or files. The command line prints the message alone and exits with 2."""
