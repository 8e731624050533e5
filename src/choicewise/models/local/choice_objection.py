"""Whether a generation chose the tokens that the plain path's logits ask for, up to rounding."""

import math

from torch import Tensor

from choicewise.questions import Generation, TokenScores


def choice_objection(generation: Generation, scores: TokenScores, logits: Tensor, slack: float) -> str | None:
    """Why a token or a rank of ``scores`` can't be right, or None.

    ``logits``: the plain path's after the same tokens, shape [tokens, vocabulary]; two of them that differ by no more
    than ``slack`` nats may change places.
    """
    for place, (row, token, rank) in enumerate(zip(logits, scores.tokens.tolist(), scores.ranks.tolist(), strict=True)):
        least, most = int((row > row[token] + slack).sum()), int((row >= row[token] - slack).sum()) - 1
        if not least <= rank <= most:
            return f"token {place + 1} of a generation has rank {rank}, not {least} to {most}"
        if generation.sampling is None and least:
            return f"token {place + 1} of a greedy generation is not the likeliest one"
        if generation.sampling is not None:
            shares = row.double().softmax(dim=0)
            above = float(shares[: token + 1].sum())
            error, share = math.expm1(slack), generation.sampling.share(place)
            if not above - float(shares[token]) - error <= share <= above + error:
                return f"token {place + 1} of a sample is not the one to be drawn"
    return None
