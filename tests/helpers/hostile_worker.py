"""The process that reads runs, but for folders whose names say what reading them does."""

import os
import subprocess
from pathlib import Path
from threading import Event
from typing import Any

from choicewise.util.isolate import serve


def hostile(question: dict[str, Any]) -> dict[str, Any]:
    folder = Path(question["folder"])
    name = folder.name
    if folder.is_fifo():
        folder.open("wb").close()  # waits for the test, which so knows that this question came
    if name == "hangs" or name == f"hangs-at-{question['task']}":
        Event().wait()
    while name == "loops":
        pass
    if name == "eats":
        return {"result": len(bytearray(2 << 30))}
    if name == "dies":
        os.abort()
    if name == "floods":
        return {"result": "x" * (1 << 20)}
    if name == "prints":
        os.write(1, b"{}\n")
        return {"result": "an answer"}
    if name == "starts":
        return {"result": subprocess.Popen(["sleep", "1000"]).pid}
    if name == "pid":
        return {"result": os.getpid()}
    from choicewise.extensions.board.runs import (
        answer,
    )  # takes longer to import than a process to start

    return answer(question)


if __name__ == "__main__":
    serve(lambda: hostile)
