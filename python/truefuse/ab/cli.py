"""truefuse ab: run, record, compare."""

from __future__ import annotations

import json
import shlex
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from truefuse.usage import DEFAULT_SEED, Command, Commands, refuse

if TYPE_CHECKING:
    from truefuse.ab.report import AbReport
    from truefuse.ab.screen import Live

app = typer.Typer(
    cls=Commands,
    help="A whole model with and without an operator: equal output first, speed only then.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Output = Annotated[Path, typer.Option("--output", "-o", help="The report, JSON.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report instead.")]


class Mode(str, Enum):
    free = "free"
    forced = "forced"


@app.command(cls=Command)
def run(
    file: Annotated[
        Path | None, typer.Argument(help="A Python file that defines `experiment`.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A transformers model: a folder, or tiny-NAME.")
    ] = None,
    op: Annotated[
        list[str] | None, typer.Option(help="With --model: swap this operator in (repeatable).")
    ] = None,
    device: Annotated[str, typer.Option(help="With --model: cpu, cuda, cuda:N.")] = "cpu",
    dtype: Annotated[
        str, typer.Option(help="With --model: float32, bfloat16, float16.")
    ] = "float32",
    requests: Annotated[int, typer.Option(min=1, help="With --model.")] = 10,
    tokens: Annotated[int, typer.Option(min=1, help="With --model: of each request.")] = 64,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="With --model: of PyTorch on the CPU. Default: one for tiny-NAME."
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, help="With --model: sequences decoded together.")
    ] = 1,
    mode: Annotated[
        Mode, typer.Option(help="free, or forced: the same tokens on both sides.")
    ] = Mode.free,
    rounds: Annotated[
        int, typer.Option(min=0, help="Of A B B A; 0: output is judged, and nothing timed.")
    ] = 5,
    seed: Annotated[int, typer.Option(help="Of requests and intervals.")] = DEFAULT_SEED,
    output: Output = Path("ab.json"),
    as_json: AsJson = False,
) -> None:
    """Run both sides, in a process of their own.

    Exit: 0 accept, 1 reject, 2 usage, 3 unknown, 130 or 143 interrupted."""
    from truefuse.ab import supervise
    from truefuse.ab.experiment import ExperimentError
    from truefuse.ab.screen import Live
    from truefuse.terminal import Screen

    if (file is None) == (model is None):
        refuse("ab run: give a Python file or --model, one of them.")
    output.unlink(missing_ok=True)  # A crash must not leave an older verdict in its place.
    live = Live(Screen(), as_json)
    of_model = {
        "name": model,
        "ops": op or [],
        "device": device,
        "dtype": dtype,
        "requests": requests,
        "tokens": tokens,
        "batch": batch,
        "threads": threads,
    }
    asked = supervise.Request(
        str(file) if file else None, of_model, mode.value, rounds, seed, _replay()
    )
    try:
        report = supervise.run(asked, live.result, live.progress)
    except ExperimentError as error:
        live.progress("")
        refuse(str(error))
    _finish(report, output, as_json, live)


@app.command(cls=Command)
def record(
    endpoint: Annotated[
        str, typer.Option(help="Of an OpenAI-compatible server: http://HOST:PORT.")
    ],
    prompts: Annotated[
        Path, typer.Option(help='JSON lines: {"prompt": ...} or {"messages": ...}.')
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The recording.")],
    engine: Annotated[str, typer.Option(help="The server's engine and version, in your words.")],
    arch: Annotated[str, typer.Option(help="The device it runs on: gfx936, sm_90, cpu.")],
    flags: Annotated[str, typer.Option(help="The server's flags, all but the operator's.")],
    operator: Annotated[
        str, typer.Option(help="What is swapped in, as hits name it: none; gdn_decode,swiglu")
    ],
    repeat: Annotated[int, typer.Option(min=1, help="Passes over the prompts.")] = 4,
    tokens: Annotated[int, typer.Option(min=1, help="At most, where a prompt does not say.")] = 256,
    timeout: Annotated[float, typer.Option(min=0.01, help="Seconds for one request.")] = 300,
    stream: Annotated[
        bool, typer.Option(help="Without streaming only throughput is measured.")
    ] = True,
    token_ids: Annotated[bool, typer.Option(help="Ask for token ids (vLLM).")] = False,
    seed: Annotated[int, typer.Option(help="Sent with every request.")] = 0,
    hits: Annotated[
        str | None, typer.Option(help="File or URL where the server counts (TRUEFUSE_HITS).")
    ] = None,
) -> None:
    """Ask a server every prompt, greedily, one at a time. Exit: 0 recorded, 2 usage, 3 incomplete."""
    from truefuse.ab import recording
    from truefuse.ab.client import Down, Endpoint
    from truefuse.ab.screen import Live
    from truefuse.terminal import Screen

    sampling: dict[str, object] = {"temperature": 0, "seed": seed, "stream": stream}
    if stream:
        sampling["stream_options"] = {"include_usage": True}
    if token_ids:
        sampling["return_token_ids"] = True
    screen = Screen()
    try:
        found = recording.record(
            Endpoint(endpoint, timeout),
            recording.read_prompts(prompts, tokens),
            output,
            said={"engine": engine, "arch": arch, "flags": flags, "operator": operator},
            sampling=sampling,
            repeat=repeat,
            hits=hits,
            progress=(live := Live(screen, quiet=False)).progress,
        )
    except (recording.BadRecording, ValueError, OSError) as error:
        refuse(str(error))
    except Down as error:
        Screen(sys.stderr).line(f"truefuse: {error}")
        raise typer.Exit(3) from error
    live.progress("")
    answers = [entry for one in found.passes for entry in one]
    errors = [entry["error"] for entry in answers if entry["error"]]
    screen.line(f"{len(answers)} answers, {len(errors)} failed, in {output}")
    for error in sorted(set(errors)):
        screen.line(error, "bold red", indent=2)
    raise typer.Exit(3 if errors else 0)


@app.command(cls=Command)
def compare(
    a1: Annotated[Path, typer.Argument(help="The baseline, recorded first.")],
    b1: Annotated[Path, typer.Argument(help="The candidate.")],
    b2: Annotated[Path, typer.Argument(help="The candidate again.")],
    a2: Annotated[Path, typer.Argument(help="The baseline again, recorded last.")],
    share: Annotated[
        float | None, typer.Option(min=0, max=1, help="The operator's share of the time per token.")
    ] = None,
    operator_speedup: Annotated[
        float | None, typer.Option(min=1e-9, help="How much faster the operator alone became.")
    ] = None,
    output: Output = Path("ab.json"),
    as_json: AsJson = False,
) -> None:
    """Judge four recordings, A B B A. Exit: 0 accept, 1 reject, 2 not comparable, 3 unknown."""
    from truefuse.ab import recorded, recording
    from truefuse.ab.screen import Live
    from truefuse.ab.speed import Amdahl
    from truefuse.terminal import Screen

    if (share is None) != (operator_speedup is None):
        refuse("ab compare: --share and --operator-speedup belong together.")
    amdahl = Amdahl(share, operator_speedup) if share is not None and operator_speedup else None
    output.unlink(missing_ok=True)
    live = Live(Screen(), as_json)
    try:
        recordings = [recording.load(path) for path in (a1, b1, b2, a2)]
        report = recorded.compare(
            recordings, amdahl=amdahl, replay=_replay(), on_result=live.result
        )
    except (recording.BadRecording, recorded.NotComparable) as error:
        refuse(str(error))
    _finish(report, output, as_json, live)


def _finish(report: AbReport, output: Path, as_json: bool, live: Live) -> NoReturn:
    from truefuse.ab import report as reports
    from truefuse.ab.screen import show

    try:
        reports.write(report, output)
    except OSError as error:
        refuse(f"--output {output}: {error.strerror}. Name a file that can be written.")
    if as_json:
        print(json.dumps(report.to_json(), indent=1))
    else:
        show(live.screen, report, str(output))
    raise typer.Exit(report.exit_code)


def _replay() -> str:
    return shlex.join(["truefuse", *sys.argv[1:]])
