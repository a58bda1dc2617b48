"""Columns of tables: what they hold, and their way to scores that a Gaussian decoder can learn."""

from sasgp.data.columns.column import KINDS, LEFT_OUT, Category, Column, Discrete, Number
from sasgp.data.columns.recognise import Finding
from sasgp.data.columns.table import Columns

__all__ = ["KINDS", "LEFT_OUT", "Category", "Column", "Columns", "Discrete", "Finding", "Number"]
