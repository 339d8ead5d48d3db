"""Tables as Parquet files in memory."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from loomrl.errors import ArtifactError


def to_parquet(columns: Mapping[str, Sequence[Any]]) -> bytes:
    """The file of these columns: texts, numbers, bytes, or lists of them."""
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table({name: list(values) for name, values in columns.items()}), sink, compression="zstd")
    return bytes(sink.getvalue())


def from_parquet(data: bytes, *, columns: Sequence[str] | None = None) -> dict[str, list[Any]]:
    """The columns of a file, or those that are named."""
    try:
        table = parquet.read_table(pa.BufferReader(data), columns=None if columns is None else list(columns))
    except pa.ArrowInvalid as error:
        raise ArtifactError(f"this is no Parquet file: {error}. Restore it from a copy.") from None
    return {name: table.column(name).to_pylist() for name in table.column_names}
