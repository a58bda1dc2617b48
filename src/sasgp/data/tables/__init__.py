"""Tables from files and data frames, as polars frames in which every column has its natural type.

    read_table(Path("survey.csv")).frame                    # text, Parquet, Feather, JSON lines, Excel
    read_table(Path("large.parquet")).blocks(["age"])       # in blocks, never whole
    read_frame(X)                                           # a DataFrame of pandas or polars

`delimited` and `headers` read text and `excel` spreadsheets: their cells are text, which `cells` turns into columns of
numbers, booleans, dates or text. `stored` opens files that have types, and `frames` takes data frames. Missing values
are null everywhere, never NaN or a code such as "NA".
"""

from sasgp.data.tables.disk import DiskTable
from sasgp.data.tables.file import LABEL_NAMES, TableFile, TextError
from sasgp.data.tables.frames import Frame, is_frame, read_frame
from sasgp.data.tables.headers import first_repeated, is_number
from sasgp.data.tables.open import TABLE_SUFFIXES, read_table, table_suffix

__all__ = [
    "LABEL_NAMES",
    "TABLE_SUFFIXES",
    "DiskTable",
    "Frame",
    "TableFile",
    "TextError",
    "first_repeated",
    "is_frame",
    "is_number",
    "read_frame",
    "read_table",
    "table_suffix",
]
