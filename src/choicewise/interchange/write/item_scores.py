"""The scores of every choice under every protocol, as one long table: what an analysis by item begins with."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from choicewise.interchange.place import one_file
from choicewise.interchange.write import Export, Writer
from choicewise.interchange.write.row_table import csv_of, parquet_of
from choicewise.interchange.write.run_names import model_names, not_whole
from choicewise.protocols.signature import short_signature
from choicewise.results.measurement import Measurement
from choicewise.results.run import Run
from choicewise.scoring.ragged import row_of
from choicewise.web.table_csv import spreadsheet_text

SCHEMA = pa.schema(
    {name: pa.dictionary(pa.int32(), pa.string()) for name in ("model", "dataset", "protocol", "id", "subject", "item")}
    | {"choice": pa.int16(), "gold": pa.bool_(), "score": pa.float64(), "predicted": pa.bool_(), "credit": pa.float64()}
    | {"missing": pa.bool_()},
    metadata={b"choicewise": b"scores"},
)
"""A row per model, dataset, protocol, item and choice.

``id``: the protocol's.  ``choice``: its index, from 0.  ``gold``, ``predicted``: whether it is right, and chosen.
``score``: null where missing, where only an upper bound is known, and for protocols that read generated text.
``credit``: of the item, in each of its rows.
"""


def item_scores(run: Run, model: str) -> Iterator[pa.Table]:
    """The scores of ``run``, whose model has that name in the tables, a table per protocol."""
    for measured in run.measurements.values():
        yield _scores(run, measured, model)


def _scores(run: Run, measured: Measurement, model: str) -> pa.Table:
    evidence = measured.evidence
    item = row_of(evidence.item_offsets)
    named = {"model": model, "dataset": run.manifest.dataset.name, "protocol": measured.name}
    named["id"] = short_signature(measured.protocol)
    everywhere = pa.array(np.zeros(len(item), dtype=np.int32))
    choices = evidence.choices
    choice = choices["choice"].to_numpy()
    known = measured.known_scores
    scores = np.full(len(item), np.nan) if known is None else known
    columns = {
        **{name: pa.DictionaryArray.from_arrays(everywhere, [text]) for name, text in named.items()},
        **{name: choices[name].dictionary_encode() for name in ("subject", "item")},
        "choice": pa.array(choice, pa.int16()),
        "gold": evidence.right,
        "score": pa.array(scores, from_pandas=True),
        "predicted": measured.prediction[item] == choice,
        "credit": pa.array(measured.credit[item], from_pandas=True),
        "missing": measured.decisions.missing[item],
    }
    return pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)


def _tables(export: Export) -> Iterator[pa.Table]:
    for run, model in zip(export.runs, model_names(export.runs), strict=True):
        yield from item_scores(run, model)
        run.release()


def _write_parquet(export: Export, out: Path) -> Sequence[str]:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(out, SCHEMA, compression="zstd") as file:
        for table in _tables(export):
            file.write_table(table)
    return not_whole(export.runs)


def _write_csv(export: Export, out: Path) -> Sequence[str]:
    import pyarrow.csv as pc

    with out.open("wb") as file:
        file.write(f"{','.join(SCHEMA.names)}\r\n".encode())
        options = pc.WriteOptions(include_header=False, eol="\r\n", quoting_style="needed")
        for table in _tables(export):
            pc.write_csv(_spelled(table), file, options)
    return not_whole(export.runs)


def _spelled(table: pa.Table) -> pa.Table:
    """The same with texts as a spreadsheet shows them and never computes them."""
    for place, column in enumerate(table.schema):
        if pa.types.is_dictionary(column.type):
            encoded = table[column.name].combine_chunks()
            texts = pa.array([spreadsheet_text(text) for text in encoded.dictionary.to_pylist()], pa.string())
            table = table.set_column(place, column.name, texts.take(encoded.indices))
    return table


CSV = Writer(
    "a row per protocol, item and choice: score, gold, prediction, credit; for a spreadsheet",
    _write_csv,
    one_file(csv_of(SCHEMA.names)),
)

PARQUET = Writer(
    "a row per protocol, item and choice: score, gold, prediction, credit",
    _write_parquet,
    one_file(parquet_of(SCHEMA)),
)
