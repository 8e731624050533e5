"""Predictors without a model: from a soft answer to probabilities of its options."""

from collections.abc import Callable

Predictor = Callable[[list[float]], list[float]]


def sharp(power: int) -> Predictor:
    """(g + 1e-4)^power, normalised."""

    def predict(gold: list[float]) -> list[float]:
        weights = [(share + 1e-4) ** power for share in gold]
        return [weight / sum(weights) for weight in weights]

    return predict


def rounded(predictor: Predictor, decimals: int) -> Predictor:
    """The same, rounded and not normalised again."""
    return lambda gold: [round(share, decimals) for share in predictor(gold)]


PREDICTORS: dict[str, Predictor] = {
    "uniform": lambda gold: [1 / len(gold)] * len(gold),
    "gold": lambda gold: gold,
    "sharp 3": sharp(3),
    "sharp 5": sharp(5),
    "sharp 3, two decimals": rounded(sharp(3), 2),
    "sharp 3, four decimals": rounded(sharp(3), 4),
    "sharp 5, two decimals": rounded(sharp(5), 2),
}
