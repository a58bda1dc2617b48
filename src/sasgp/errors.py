"""What a user can put right."""

__all__ = ["InputError"]


class InputError(ValueError):
    """Input that cannot be used. The message says what was expected, what came, and what to do.

    Parameters
    ----------
    message : str
        Line breaks, which a name in the user's data may have, become spaces.
    argument : str, optional
        The argument that is wrong, under its name in Python. The command line adds the option that sets it.
    """

    def __init__(self, message: str, *, argument: str | None = None) -> None:
        super().__init__(" ".join(message.splitlines()))
        self.argument = argument
