"""What a model scores on the val split, by which its recipe was chosen."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import choicewise
from choicewise.bundled import BENCHMARK

PROTOCOLS = {"cloze": "mmlu/cloze:sum", "letters": "mmlu/original"}


def probed(model: Path) -> dict[str, float]:
    """The share of the questions of the val split that the model answers right, by way of asking."""
    with TemporaryDirectory() as folder:
        questions, run = Path(folder, "merrowick-val"), Path(folder, "run")
        shutil.copytree(BENCHMARK / "dev", questions / "dev")
        (questions / "test").mkdir()
        for file in (BENCHMARK / "val").glob("*.csv"):
            shutil.copy(file, questions / "test" / file.name.replace("_val", "_test"))
        evaluated = choicewise.evaluate(
            model=str(model),
            data=str(questions),
            protocols=[*PROTOCOLS.values()],
            out=run,
            progress=None,
        )
        values = {row["protocol"]: row["value"] for row in evaluated.report().to_pylist()}
    return {way: values[protocol] for way, protocol in PROTOCOLS.items()}
