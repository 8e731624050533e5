"""The part of a run that the task of a Slurm array has by its number."""

from __future__ import annotations

from collections.abc import Mapping

from choicewise.running.shards import WANTED

_VARIABLES = "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN"


def part_of_array(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return the number of this task, from 1 on, and how many tasks the array has."""
    lacking = [name for name in _VARIABLES if not environment.get(name, "").isdecimal()]
    if lacking:
        raise ValueError(
            f"{WANTED}: {lacking[0]} is not set, so this is no task of an array (sbatch --array=1-N)"
        )
    task, count, least = (int(environment[name]) for name in _VARIABLES)
    step, most = (
        int(text)
        if (text := environment.get(f"SLURM_ARRAY_TASK_{name}", "")).isdecimal()
        else default
        for name, default in (("STEP", 1), ("MAX", least + count - 1))
    )
    step = step or 1
    if (
        count < 1
        or (count == 1 and least > 1)
        or most != least + (count - 1) * step
        or (task - least) % step
    ):
        raise ValueError(
            f"{WANTED}: the array of this task (--array from {least} to {most}, {count} in all) is a part of another,"
            " so it does not say how many there are"
        )
    number = (task - least) // step + 1
    if not 1 <= number <= count:
        raise ValueError(
            f"{WANTED}: SLURM_ARRAY_TASK_ID is {task}, and the array goes from {least} to {most}"
        )
    return number, count
