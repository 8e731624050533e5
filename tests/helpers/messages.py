"""Messages that tests know by their numbers, names and commands, whatever the words between them."""


class Gist:
    """Equal every text that has all pieces in their order: ``notes == [Gist("3 of 12 ... --all")]``."""

    def __init__(self, pieces: str) -> None:
        self.pieces = pieces.split(" ... ")

    def __eq__(self, text: object) -> bool:
        if not isinstance(text, str):
            return False
        start = 0
        for piece in self.pieces:
            position = text.find(piece, start)
            if position < 0:
                return False
            start = position + len(piece)
        return True

    # Texts that are equal to a message have hashes of their own.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Gist({' ... '.join(self.pieces)!r})"
