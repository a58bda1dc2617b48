"""What a user can put right."""

__all__ = ["InputError"]


class InputError(ValueError):
    """Input that cannot be used. The message says what was expected, what came, and what to do.

    Parameters
    ----------
    message : str
    argument : str, optional
        The argument that is wrong, under its name in Python. The command line adds the option that sets it.
    """

    def __init__(self, message: str, *, argument: str | None = None) -> None:
        super().__init__(message)
        self.argument = argument
