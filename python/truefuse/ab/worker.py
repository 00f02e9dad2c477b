"""The child of `truefuse.ab.supervise`: makes the two sides, runs the A/B, and says how far it is."""

from __future__ import annotations

import faulthandler
from collections.abc import Callable
from pathlib import Path
from typing import Any

from truefuse import worker
from truefuse.ab import engine, experiment
from truefuse.ab.experiment import Experiment, ExperimentError
from truefuse.supervise import LOAD


def main() -> None:
    """The one argument is the request as JSON; answers go to the pipe that it names."""
    faulthandler.enable()
    request, send = worker.answering()
    worker.end_with_parent(request["parent"])
    progress = lambda text: send("progress", text=text)  # noqa: E731
    send("step", name=LOAD)
    try:
        chosen = _experiment(request, progress)
        send("made", name=chosen.name, device=str(chosen.device))
        report = engine.run(
            **vars(chosen),
            mode=request["mode"],
            rounds=request["rounds"],
            seed=request["seed"],
            replay=request["replay"],
            on_result=lambda result: send("result", result=result.to_json()),
            progress=progress,
            on_step=lambda name: send("step", name=name),
        )
    except (ExperimentError, ValueError) as error:
        send("no-experiment", text=str(error))
        return
    send("report", report=report.to_json())


def _experiment(request: dict[str, Any], progress: Callable[[str], None]) -> Experiment:
    if request["file"] is not None:
        return experiment.load(Path(request["file"]))
    try:
        from truefuse.integrations.transformers import experiments
    except ImportError as error:
        raise ExperimentError(f"--model needs the package transformers: {error}") from error
    return experiments.of_model(**request["model"], seed=request["seed"], progress=progress)


if __name__ == "__main__":
    main()
