"""The fixed Parquet schemas of a run folder.

Three tables, written together for one block of items.  ``requests``: one row per (prompt, item), the text as sent.
``spans``: one row per (prompt, item, choice, part, null context), which observation answers it.  ``observations``: one
row per unique question, whichever protocol asked.  Floats are floats in every shard, whatever the values.
"""

import pyarrow as pa

FLOAT32 = ":float32"
"""Suffix of an observation's key: the same question, answered by a float32 copy of a 16-bit model."""

GENERATED = -1
"""The choice index of a generation, which belongs to no choice."""

ITEMS = pa.schema(
    [
        ("position", pa.int32()),  # in the table
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
        ("shots", pa.int16()),  # in the context
        ("shots_dropped", pa.int16()),  # did not fit
        ("tokens_dropped", pa.int32()),  # cut from the context, the greatest number over all choices
        ("missing", pa.string()),  # why it could not be asked; else null
    ]
)

SPANS = pa.schema(
    [
        ("prompt", pa.string()),
        ("item", pa.string()),
        ("choice", pa.int16()),  # GENERATED for a generation, which belongs to no choice
        ("part", pa.int16()),  # counts from 0 where several things are asked about a choice
        ("null", pa.string()),  # the null context, null for the request itself
        ("context", pa.string()),  # the choice's own; null where it is the request's or the null context
        ("continuation", pa.string()),
        ("key", pa.string()),  # of the observation; null when missing
        ("context_tokens", pa.int32()),
        ("tokens_dropped", pa.int32()),
        ("before", pa.string()),  # key of the observation whose log-probability is subtracted; else null
        ("after", pa.string()),  # key of the observation whose log-probability is added; else null
        ("merged", pa.bool_()),  # encoded with the continuation, a token goes beyond the end of the context
        ("noncanonical", pa.bool_()),  # context and scored tokens are not those of the text encoded in one piece
        ("lossy", pa.bool_()),  # the tokens of the context or the scored tokens do not spell their text
        ("unknown", pa.int32()),  # unknown tokens among the scored tokens
        ("bos", pa.int32()),  # BOS tokens in context and continuation
        ("missing", pa.string()),
    ]
)

OBSERVATIONS = pa.schema(
    [
        ("key", pa.string()),
        ("tokens", pa.list_(pa.int32())),
        ("sizes", pa.list_(pa.int32())),  # bytes each token stands for
        ("logprobs", pa.list_(pa.float32())),  # nats; of a loss, which gives only their mean, that mean at each token
        ("ranks", pa.list_(pa.int32())),  # vocabulary entries with a strictly greater logit
        ("text", pa.string()),  # of a generation; else null
        ("value", pa.float32()),  # a loss (nats per token) or a cosine; else null
        ("total", pa.float64()),  # log-likelihood (nats) of an observation without tokens, from another tool; else null
    ]
)
