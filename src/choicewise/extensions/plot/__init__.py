"""Declare the command ``plot`` and the charts of the numbers themselves, in the order of the page."""

from __future__ import annotations

from choicewise.ports import ChartKind, Command, Extension, calls, returns


class Plot(Command):
    """Declare ``choicewise plot``."""

    name = "plot"
    summary = "Draw one chart of the page into a file."
    app = returns("choicewise.extensions.plot.commands:plot")


class Strip(ChartKind):
    """Declare ``choicewise plot DIR... strip``."""

    name = "strip"
    summary = "all numbers of a model"
    needs = "a number"
    uses = ("models", "protocol", "rank")
    lacks = calls("choicewise.extensions.plot.kinds:strip_lacks")
    draw = calls("choicewise.extensions.plot.kinds:draw_strip")


class Ladder(ChartKind):
    """Declare ``choicewise plot DIR... ladder``."""

    name = "ladder"
    summary = "from one number to another"
    needs = "two protocols"
    uses = ("models", "start", "end")
    lacks = calls("choicewise.extensions.plot.kinds:ladder_lacks")
    draw = calls("choicewise.extensions.plot.kinds:draw_ladder")


class Effects(ChartKind):
    """Declare ``choicewise plot DIR... effects``."""

    name = "effects"
    summary = "what each axis does"
    needs = "protocols that differ in one axis"
    uses = ("models",)
    lacks = calls("choicewise.extensions.plot.kinds:effects_lacks")
    draw = calls("choicewise.extensions.plot.kinds:draw_effects")


class Bump(ChartKind):
    """Declare ``choicewise plot DIR... bump``."""

    name = "bump"
    summary = "models over protocols"
    needs = "several models"
    uses = ("models", "protocol", "rank")
    lacks = calls("choicewise.extensions.plot.kinds:bump_lacks")
    draw = calls("choicewise.extensions.plot.kinds:draw_bump")


class Ranks(ChartKind):
    """Declare ``choicewise plot DIR... ranks``."""

    name = "ranks"
    summary = "does the order hold"
    needs = "several models"
    uses = ("protocol",)
    metrics = True
    lacks = calls("choicewise.extensions.plot.kinds:ranks_lacks")
    draw = calls("choicewise.extensions.plot.kinds:draw_ranks")


class Pair(ChartKind):
    """Declare ``choicewise plot DIR... pair``."""

    name = "pair"
    summary = "two models compared"
    needs = "two models"
    uses = ("models",)
    lacks = calls("choicewise.extensions.plot.kinds:pair_lacks")
    draw = calls("choicewise.extensions.plot.kinds:draw_pair")


EXTENSION = Extension("plot", [Plot(), Strip(), Ladder(), Effects(), Bump(), Ranks(), Pair()])
