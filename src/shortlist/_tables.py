"""Tables as files: columns of text and numbers in CSV or Parquet, safe to open in a spreadsheet."""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from csv import DictWriter, Error as CsvError, reader as csv_reader
from pathlib import Path
from typing import Any, TextIO

from shortlist._store.files import check_regular, replacing, write_text

_LONGEST = 1_000_000  # characters of a line
_FORMULA = "=+-@\t\r\n"  # with which a formula of a spreadsheet begins
NO_NUMBER = ("NA", "N/A", "#N/A", "n/a", "NaN", "nan", "NULL", "null")  # in a column of numbers


def read_columns(
    path: str | Path, wanted: Sequence[str], *, optional: Sequence[str] = (), gaps: bool = False
) -> dict[str, Any]:
    """Read columns of a ``.csv`` or ``.parquet`` file as Arrow arrays; ``optional`` ones may be missing.

    Blank fields are missing; in a wanted column they are an error, unless it may have ``gaps``. A column of a
    ``.csv`` file is text, or whole numbers if all its fields are such, written as usual: 007 stays 007. The
    quote that :func:`safe_cell` put before its text is taken away.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It cannot be read as its suffix says, has a column twice, or lacks a wanted one or a
            field of it.
    """
    import pyarrow
    from pyarrow import csv, parquet

    path, lines = Path(path), csv.ParseOptions(newlines_in_values=True)
    if not path.is_file():
        columns = ", ".join(wanted)
        raise FileNotFoundError(
            f"{path} is missing. Expected a .csv or .parquet file with the columns {columns}."
        )
    try:
        if path.suffix.lower() == ".parquet":
            names = parquet.read_schema(path).names
        else:
            with csv.open_csv(path, parse_options=lines) as reader:
                names = reader.schema.names
        if lacking := [name for name in wanted if name not in names]:
            raise ValueError(
                f"{path} has no column {lacking[0]!r}; its columns are {', '.join(map(str, names))}"
            )
        chosen = [*wanted, *(name for name in optional if name in names)]
        if twice := [name for name in chosen if names.count(name) > 1]:
            raise ValueError(f"{path} has the column {twice[0]!r} more than once: which one counts?")
        if path.suffix.lower() == ".parquet":
            table = parquet.read_table(path, columns=chosen)
        else:
            text = csv.ConvertOptions(
                include_columns=chosen, column_types=dict.fromkeys(chosen, pyarrow.string())
            )
            table = csv.read_csv(path, parse_options=lines, convert_options=text)
    except (pyarrow.ArrowInvalid, UnicodeDecodeError, OSError) as error:
        raise ValueError(f"{path} cannot be read as {path.suffix or 'CSV'}: {error}") from error
    columns = {name: tidy_column(table[name].combine_chunks()) for name in chosen}
    if path.suffix.lower() != ".parquet":  # which knows numbers from text, and has no formulas
        cells = {name: _each_cell(column, plain_cell) for name, column in columns.items()}
        columns = {name: _numbers_if_whole(column) for name, column in cells.items()}
    for name in wanted:
        if (empty := columns[name].null_count) and not gaps:
            first = columns[name].is_null().index(True).as_py() + 1
            raise ValueError(f"{path} has {empty} empty fields in column {name!r}, the first in row {first}")
    return columns


@contextmanager
def text_rows(
    path: str | Path, what: str, *, delimiters: str = "\t,;"
) -> Iterator[tuple[list[str], Iterator[list[str]]]]:
    """Give the first row of a table as text, and the others one at a time, none shorter: tables may be large.

    Args:
        path: The file.
        what: What it is read as, for messages, such as ``"a place"``.
        delimiters: Signs that may part the cells: a tab if there is one, else what the first row has most
            outside of quotes.
    """
    try:
        check_regular(path)
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            first = file.readline(_LONGEST)
            file.seek(0)
            bare = re.sub('"[^"]*"', "", first)
            sign = "\t" if "\t" in bare else max(delimiters[1:], key=bare.count)
            # where tabs or bars part the cells, quotes are ordinary characters, unless the first row has them
            is_quoted = sign in ",;" or first.startswith('"')
            lines = _lines(file, path)
            plain = (line.rstrip("\r\n").split(sign) for line in lines)
            cells = csv_reader(lines, delimiter=sign) if is_quoted else plain
            rows = (row for row in cells if any(map(str.strip, row)))
            header = next(rows, [])
            if not header:
                raise ValueError(f"{path} must have at least 1 row, got an empty file")
            yield header, (row + [""] * (len(header) - len(row)) for row in rows)
    except OSError as error:
        raise ValueError(f"{path} cannot be read as {what}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} cannot be read as a table: it must be text in UTF-8") from error
    except CsvError as error:
        raise ValueError(f"{path} cannot be read as a table: {error}") from error


def _lines(file: TextIO, path: str | Path) -> Iterator[str]:
    """Give the lines of a file, and refuse one that is too long before it is read to its end."""
    while line := file.readline(_LONGEST + 1):
        if len(line) > _LONGEST:
            raise ValueError(
                f"{path} cannot be read as a table: a line has more than {_LONGEST:,} characters"
            )
        yield line


def write_columns(path: str | Path, columns: Mapping[str, Any]) -> None:
    """Write columns of text and numbers as ``.csv``, with :func:`safe_cell`, or as ``.parquet``."""
    write_parts(path, [columns])


def write_csv(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of numbers and names as they are to a ``.csv``, with a column for each key of a row."""
    text = io.StringIO()
    columns = list(dict.fromkeys(key for row in rows for key in row))
    writer = DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def write_parts(path: str | Path, parts: Iterable[Mapping[str, Any]]) -> None:
    """Write columns that come in parts, one part in memory at a time; there must be at least one part."""
    import pyarrow
    from pyarrow import csv, parquet

    suffix = Path(path).suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise ValueError(f"path must end in .csv or .parquet, got {path}")
    with replacing(path) as temporary, ExitStack() as stack:
        writer: Any = None
        for part in parts:
            kinds = {name: pyarrow.string() for name, column in part.items() if not len(column)}
            arrays = {name: pyarrow.array(column, kinds.get(name)) for name, column in part.items()}
            if suffix == ".csv":
                arrays = {name: _each_cell(column, safe_cell) for name, column in arrays.items()}
            table = pyarrow.table(arrays)
            if writer is None:
                open_writer = parquet.ParquetWriter if suffix == ".parquet" else csv.CSVWriter
                writer = stack.enter_context(open_writer(temporary, table.schema))
            writer.write_table(table)


def safe_cell(text: str) -> str:
    """Put a quote before text that a spreadsheet would run as a formula.

    Text that looks as if it had such a quote gets another one: no two texts become the same, and
    :func:`plain_cell` gives each back.

    Example:
        >>> safe_cell("=HYPERLINK(1)"), safe_cell("oak"), safe_cell("-2.5"), safe_cell("'=1")
        ("'=HYPERLINK(1)", 'oak', '-2.5', "''=1")
    """
    if plain_cell(text) != text:
        return f"'{text}"
    if not text.startswith(tuple(_FORMULA)):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text  # a number


def plain_cell(cell: str) -> str:
    """Return the text that :func:`safe_cell` made a cell of."""
    return cell[1:] if cell[:1] == "'" and cell[1:2] in ("'", *_FORMULA) else cell


def _each_cell(column: Any, change: Callable[[str], str]) -> Any:
    """Apply a function to each text of an Arrow column that begins with a quote or as a formula does."""
    import pyarrow
    import pyarrow.compute

    compute: Any = pyarrow.compute  # its functions are made when it is imported
    if not pyarrow.types.is_string(column.type):
        return column
    first = compute.utf8_slice_codeunits(column, 0, 1)
    if not compute.any(compute.is_in(first, value_set=pyarrow.array(["'", *_FORMULA]))).as_py():
        return column  # nearly always
    return pyarrow.array([None if text is None else change(text) for text in column.to_pylist()])


def tidy_column(column: Any) -> Any:
    """Clean an Arrow column: blank text and NaN become missing, floating whole numbers become integers.

    Floating is what pandas makes of whole numbers with gaps.
    """
    import pyarrow
    import pyarrow.compute

    compute: Any = pyarrow.compute  # its functions are made when it is imported
    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type):
        return compute.if_else(compute.equal(compute.utf8_trim_whitespace(column), ""), None, column)
    if pyarrow.types.is_floating(column.type):
        column = compute.if_else(compute.is_nan(column), None, column)
        try:
            return column.cast(pyarrow.int64())
        except pyarrow.ArrowInvalid:  # not all of them whole
            return column
    return column


def _numbers_if_whole(column: Any) -> Any:
    """Convert a column of text to integers if nothing is lost, as it would be with 007."""
    import pyarrow
    import pyarrow.compute

    compute: Any = pyarrow.compute  # its functions are made when it is imported
    encoded = column.dictionary_encode()
    text = encoded.dictionary
    text = compute.if_else(compute.is_in(text, value_set=pyarrow.array(NO_NUMBER)), None, text)
    try:
        numbers = text.cast(pyarrow.int64())
    except pyarrow.ArrowInvalid:
        return column
    return numbers.take(encoded.indices) if numbers.cast(pyarrow.string()).equals(text) else column
