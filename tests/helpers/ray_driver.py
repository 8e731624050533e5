"""A driver for tests of the cluster: toy actors, one JSON line out after each line in that calls a function below."""

import json
import logging
import os
import sys
import time
from typing import Any

import ray


class Toy:
    """An actor that says where it is, waits, and breaks."""

    def where(self) -> dict[str, Any]:
        """Its process, node, Python, and what of its environment matters to a model."""
        import choicewise

        return {
            "pid": os.getpid(),
            "node": ray.get_runtime_context().get_node_id(),
            "python": sys.executable,
            "choicewise": choicewise.__file__,
            "threads": os.environ.get("OMP_NUM_THREADS"),
            "devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        }

    def sleep(self, seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    def fail(self) -> None:
        raise ValueError("no")


ACTORS: dict[str, Any] = {}
ANSWERS: dict[str, Any] = {}


def start(name: str, **options: Any) -> None:
    """Asks for an actor; its answer to ``where`` is awaited under its name."""
    ACTORS[name] = ray.remote(Toy).options(**options).remote()
    ask(name, "where")


def ask(name: str, method: str, *arguments: Any) -> None:
    """Calls an actor without waiting for the answer."""
    ANSWERS[name] = getattr(ACTORS[name], method).remote(*arguments)


def answer(name: str, patience: float = 60) -> dict[str, Any]:
    """The actor's answer to its last call, or the names of what it raised."""
    try:
        return {"value": ray.get(ANSWERS[name], timeout=patience)}
    except Exception as error:
        return {"raised": [kind.__name__ for kind in type(error).__mro__], "text": str(error)}


def dismiss(name: str) -> None:
    ray.kill(ACTORS.pop(name))


def cluster() -> dict[str, Any]:
    """Nodes that are alive, what they have and what of it is free."""
    alive = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    return {"alive": alive, "all": ray.cluster_resources(), "free": ray.available_resources()}


if __name__ == "__main__":
    ray.init(logging_level=logging.ERROR, log_to_driver=False)
    print(json.dumps(ray.get_runtime_context().gcs_address), flush=True)
    for line in sys.stdin:
        function, arguments, options = json.loads(line)
        print(json.dumps(globals()[function](*arguments, **options)), flush=True)
