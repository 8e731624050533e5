"""Reading ``loglikelihood``: a score of each continuation's tokens, or the calibrated probability of a label."""

from choicewise.protocols.protocol import Protocol
from choicewise.scoring.calibration import calibrated
from choicewise.scoring.calibration_range import calibrated_range
from choicewise.scoring.lows import Range
from choicewise.scoring.ragged import Floats
from choicewise.scoring.readings import Combiner, Observed


def _scores(protocol: Protocol, observed: Observed) -> Floats:
    if protocol.calibration == "none":
        return observed.scores(protocol.score, protocol.null, protocol.outside)
    return calibrated(protocol.calibration, protocol.views, observed.part_sums, observed.item_offsets)


def _range(protocol: Protocol, observed: Observed) -> Range:
    if protocol.calibration == "none":
        return observed.score_range(protocol.score, protocol.null, protocol.outside)
    parts = observed.part_lows, observed.part_sums
    return calibrated_range(protocol.calibration, protocol.views, parts, observed.item_offsets)


COMBINER = Combiner(
    _scores,
    lambda protocol, observed: observed.continuations() if protocol.calibration == "none" else None,
    ranges=_range,
)
