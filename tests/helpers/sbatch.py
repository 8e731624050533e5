"""A ``sbatch`` that runs the tasks of an array one after the other, in this machine's shell, and ends with the last.

``[--parsable] [--dependency=...] [--array=A-B] (SCRIPT | --wrap=LINE)``; ``#SBATCH`` lines of the script say the rest.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

JOB = "4711"


def main(words: list[str]) -> int:
    """Run the job; the number of tasks that failed."""
    options = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
    script = next((word for word in words if not word.startswith("--")), None)
    text = options["wrap"] if script is None else Path(script).read_text(encoding="utf-8")
    own = dict(
        word[2:].partition("=")[::2]
        for line in re.findall(r"^#SBATCH (.*)", text, re.MULTILINE)
        for word in line.split()
    )
    array, tasks = {**own, **options}.get("array"), [dict[str, str]()]
    if array is not None:
        numbers = [
            number
            for part in array.partition("%")[0].split(",")
            for first, _, last in [part.partition("-")]
            for number in range(int(first), int(last or first) + 1)
        ]
        whole = {"COUNT": len(numbers), "MIN": min(numbers), "MAX": max(numbers), "STEP": 1}
        tasks = [
            {
                f"SLURM_ARRAY_TASK_{name}": str(value)
                for name, value in {**whole, "ID": each}.items()
            }
            for each in numbers
        ]
    failed = 0
    for task in tasks:
        log = f"{JOB}-{task.get('SLURM_ARRAY_TASK_ID', '')}.log"
        with open(log, "w", encoding="utf-8") as file:
            ended = subprocess.run(
                ["bash", "-c", text],
                env={**os.environ, **task},
                stdout=file,
                stderr=file,
                check=False,
            )
        failed += ended.returncode != 0
    print(JOB if "parsable" in options else f"Submitted batch job {JOB}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
