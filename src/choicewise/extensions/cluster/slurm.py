"""Read which part of a run the task of a Slurm array has to compute."""

from __future__ import annotations

from collections.abc import Mapping

from choicewise.running.shards import WANTED

_VARIABLES = "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN"


def part_of_array(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return the number of this task, from 1 on, and how many tasks the array has.

    Raises ValueError outside an array, and in an array that was submitted in pieces.
    """
    for name in _VARIABLES:
        if not environment.get(name, "").isdecimal():
            raise ValueError(f"{WANTED}: {name} is not set; submit an array (sbatch --array=1-N)")
    task, count, least = (int(environment[name]) for name in _VARIABLES)
    step = _number(environment, "SLURM_ARRAY_TASK_STEP", 1) or 1
    most = _number(environment, "SLURM_ARRAY_TASK_MAX", least + count - 1)
    # Numbers that don't run from the least to the most by the step belong to another array, whose
    # other tasks nobody counts here.
    has_gaps = most != least + (count - 1) * step or (task - least) % step != 0
    if has_gaps or count < 1 or (count == 1 and least > 1):
        raise ValueError(
            f"{WANTED}: the array of this task (--array from {least} to {most}, {count} in all) is "
            "part of another, so the number of shards is unknown"
        )
    number = (task - least) // step + 1
    if not 1 <= number <= count:
        raise ValueError(
            f"{WANTED}: SLURM_ARRAY_TASK_ID is {task}, outside the array from {least} to {most}"
        )
    return number, count


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    return int(text) if text.isdecimal() else default
