"""Rows in memory, in the form that training asks for: what `sasgp.data.rows` is to the estimators."""


class Memory:
    """A tensor [N, D] with a length and `gather`."""

    def __init__(self, X):
        self.X = X

    def __len__(self):
        return len(self.X)

    def gather(self, rows):
        return self.X[rows]
