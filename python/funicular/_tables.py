"""Rows and texts of Python as a file that the program reads: JSON lines."""

import array
import ast
import collections.abc
import json
import math
import os
import pathlib


def is_path(data):
    return isinstance(data, (str, os.PathLike))


def plain(value):
    """A cell as JSON has it: missing values become null, numpy's scalars numbers, anything else text."""
    if hasattr(value, "tolist"):  # of numpy
        value = value.tolist()
    if isinstance(value, float) and math.isnan(value) or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, collections.abc.Mapping):
        raise TypeError(f"a cell holds a {type(value).__name__}; expected a text, a number, or a list of them")
    if isinstance(value, (list, tuple, set)):
        return [plain(one) for one in value]
    return str(value)


def columns_of(data):
    """name -> values of a table: a data frame of pandas or polars, a table of pyarrow or datasets, a mapping; None if it is none."""
    if isinstance(data, collections.abc.Mapping):
        return data
    module = type(data).__module__.partition(".")[0]
    if hasattr(data, "to_pydict"):  # pyarrow
        return data.to_pydict()
    if module == "polars" and hasattr(data, "get_columns"):
        return {column.name: column.to_list() for column in data.get_columns()}
    if module == "pandas" and hasattr(data, "columns"):
        return {str(name): data[name].tolist() for name in data.columns}
    if module == "datasets":
        return data.to_dict()
    return None


def rows_of(data, names):
    """(rows as mappings, whether their columns were named by us). names: the columns of a row that is a tuple of so many values."""
    columns = columns_of(data)
    if columns is not None:
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the columns have different lengths: {lengths}")
        return [dict(zip(columns, row)) for row in zip(*columns.values())], False
    rows = data.tolist() if hasattr(data, "tolist") else data.to_pylist() if hasattr(data, "to_pylist") else list(data)
    if rows and isinstance(rows[0], collections.abc.Mapping):
        return rows, False
    rows = [(row,) if isinstance(row, str) else tuple(row) for row in rows]
    sizes = {len(row) for row in rows}
    if len(sizes) > 1 or not sizes <= names.keys():
        raise ValueError(f"a row has {min(sizes)} to {max(sizes)} values; expected " +
                         " or ".join(", ".join(row) for row in names.values()))
    return [dict(zip(names[len(row)], row)) for row in rows], True


def write(data, file, names):
    """Writes the file; gives the columns' names if they are ours, else None."""
    rows, ours = rows_of(data, names)
    if not rows:
        raise ValueError("there are no rows")
    with pathlib.Path(file).open("w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps({str(name): plain(value) for name, value in row.items()}, ensure_ascii=False) + "\n")
    return list(rows[0]) if ours else None


def read_npy(file):
    """The table of a file that the program wrote: an array if numpy is installed, else a list of lists."""
    try:
        import numpy
    except ImportError:
        raw = pathlib.Path(file).read_bytes()
        size = int.from_bytes(raw[8:10], "little")
        header = ast.literal_eval(raw[10:10 + size].decode())
        rows, columns = header["shape"]
        numbers = array.array({"<f4": "f", "|i1": "b", "|u1": "B"}[header["descr"]], raw[10 + size:])
        return [list(numbers[row * columns:(row + 1) * columns]) for row in range(rows)]
    return numpy.load(file)
