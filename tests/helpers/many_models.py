"""Runs of many models that nobody ran: a real run for the folder and the items, and credits as a test wants them."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from choicewise import evaluate
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import Protocol
from choicewise.results.outcomes import Outcome, Outcomes, Summary
from choicewise.results.run import Run
from choicewise.results.tables import read_item_names

PROTOCOLS = {
    name: resolve(name)[name] for name in ("options/cloze:sum", "options/quoted-sum-forward")
}


def one_run(out: Path, items: int) -> Run:
    """A run of ``fake:hash`` on so many questions of two subjects."""
    asked = tuple(
        Item(
            f"q{n}",
            f"Which is number {n}?",
            ("red", "tall", "salty"),
            (n % 3,),
            subject="ab"[2 * n // items],
        )
        for n in range(items)
    )
    return evaluate(
        model="fake:hash", data=Dataset("quiz", {"test": asked}), protocols=PROTOCOLS, out=out
    )


def summary(
    run: Run,
    model: str,
    credits: Mapping[str, npt.ArrayLike],
    kept: npt.ArrayLike | None = None,
    protocols: Mapping[str, Protocol] = PROTOCOLS,
    **about: Any,
) -> Summary:
    """The run as if ``model`` had these credits by protocol, of the items ``kept`` (places; None: of all).

    ``about``: of the manifest.
    """
    items = read_item_names(run.folder)
    items = items if kept is None else items.take(pa.array(np.asarray(kept)))
    digest = hashlib.sha256(model.encode()).hexdigest()
    manifest = replace(
        run.manifest, model=replace(run.manifest.model, name=model, digest=digest), **about
    )
    own = []
    for name, values in credits.items():
        known, codes = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True)
        predicted = np.zeros(len(codes), dtype=np.int64)
        protocol = protocols[name]
        own.append(
            Outcome(
                name=name,
                protocol=protocol,
                categories={},
                selection="",
                items=items,
                values=known,
                codes=codes.astype(np.int32),
                predicted=predicted,
                first=protocol.digest,
            )
        )
    dataset = manifest.dataset
    return Summary(
        folder=run.folder,
        manifest=manifest,
        rows=(),
        outcomes=Outcomes(model, dataset.name, dataset.digest, tuple(own)),
    )
