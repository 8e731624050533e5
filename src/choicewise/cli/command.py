"""A command that refuses an option given twice where only the last one would count."""

from typing import Any

from typer.core import TyperCommand, TyperOption

from choicewise.errors import UsageError


class Command(TyperCommand):
    """What every command of ours is."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line; UsageError for an option that is given twice and takes one value."""
        _, _, given = self.make_parser(ctx).parse_args(args=[*args])
        once = [each for each in given if isinstance(each, TyperOption) and not each.multiple and not each.is_flag]
        if twice := {each.opts[0] for each in once if once.count(each) > 1}:
            raise UsageError(f"{' and '.join(sorted(twice))} is given twice, and only the last one would count")
        return super().parse_args(ctx, args)
