"""How much token sequences have in common at their start."""

from collections.abc import Sequence

from choicewise.questions import Ids


def common_prefix(sequences: Sequence[Ids]) -> int:
    """Length (tokens) of the longest prefix that all ``sequences``, at least one, have in common."""
    length = min(map(len, sequences))
    for sequence in sequences[1:]:
        differ = sequences[0][:length] != sequence[:length]
        length = int(differ.argmax()) if differ.any() else length
    return length
