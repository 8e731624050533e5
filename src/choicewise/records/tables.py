"""The fixed Parquet schemas of a run folder.

Three tables, written together for one block of items.  ``requests``: one row per (prompt, item), the text as sent.
``spans``: one row per (prompt, item, choice, part, null context), which observation answers it.  ``observations``: one
row per unique question, whichever protocol asked.  Floats are floats in every shard, whatever the values.
"""

from __future__ import annotations

import pyarrow as pa

VERSION = 2
"""Of the run folder's format; folders of another version are refused."""

FLOAT32 = ":float32"
"""Suffix of an observation's key: the same question, answered by a float32 copy of a 16-bit model."""

GENERATED = -1
"""The choice index of a generation, which belongs to no choice."""

ITEMS = pa.schema(
    [
        ("position", pa.int32()),  # in the split, file order
        ("split", pa.string()),
        ("item", pa.string()),
        ("subject", pa.string()),
        ("question", pa.string()),
        ("choices", pa.list_(pa.string())),
        ("gold", pa.list_(pa.int16())),
        ("fields", pa.string()),  # Item.fields, a JSON object
    ]
)

REQUESTS = pa.schema(
    [
        ("prompt", pa.string()),  # Protocol.prompt_digest
        ("item", pa.string()),
        ("subject", pa.string()),
        ("gold", pa.list_(pa.int16())),
        ("context", pa.string()),  # as sent, after fitting
        ("continuations", pa.list_(pa.string())),
        ("options", pa.list_(pa.string())),  # the choices as shown, after quirks and stripping
        ("shots", pa.int16()),  # shots left in the context
        ("shots_dropped", pa.int16()),
        ("tokens_dropped", pa.int32()),  # cut from the token sequence, the most over all choices
        ("missing", pa.string()),  # why nothing could be asked; null when asked
    ]
)

SPANS = pa.schema(
    [
        ("prompt", pa.string()),
        ("item", pa.string()),
        ("choice", pa.int16()),  # -1 for a generation or a chain, which belong to no choice
        ("part", pa.int16()),  # from 0 where a choice is asked several things, in several views or after several chains
        ("null", pa.string()),  # the null context, null for the request itself
        ("context", pa.string()),  # its own, or what follows the chain; null where it is the request's or the null one
        ("continuation", pa.string()),
        ("key", pa.string()),  # of the observation; null when missing
        ("context_tokens", pa.int32()),
        ("tokens_dropped", pa.int32()),
        ("before", pa.string()),  # key of the observation whose log-probability is to be subtracted; null for none
        ("after", pa.string()),  # key of the one whose log-probability is to be added; null for none
        ("merged", pa.bool_()),  # a token straddles the end of the context in the text encoded whole
        ("noncanonical", pa.bool_()),  # context and scored tokens are not the tokens of the text encoded whole
        ("lossy", pa.bool_()),  # the tokens of the context or the scored ones do not spell their text
        ("unknown", pa.int32()),  # unknown tokens among the scored ones
        ("bos", pa.int32()),  # BOS tokens in context and continuation
        ("missing", pa.string()),
    ]
)

OBSERVATIONS = pa.schema(
    [
        ("key", pa.string()),
        ("tokens", pa.list_(pa.int32())),
        ("sizes", pa.list_(pa.int32())),  # bytes each token stands for
        ("logprobs", pa.list_(pa.float32())),  # nats; of a loss, which tells their mean alone, that mean at each token
        ("ranks", pa.list_(pa.int32())),  # vocabulary entries with a strictly greater logit
        ("text", pa.string()),  # of a generation or a chain; null for a span
        ("value", pa.float32()),  # what is no log-probability: a loss (nats per token), a cosine; else null
        (
            "total",
            pa.float64(),
        ),  # log-likelihood (nats) of what came without tokens, as in other tools' logs; else null
    ]
)
