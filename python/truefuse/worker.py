"""The child of `truefuse.supervise`: loads the case, runs the check, and says how far it is."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import torch

from truefuse import ahead, case_check, check, command_line, describe, flags, in_place
from truefuse import case as cases
from truefuse.context import Context
from truefuse.supervise import LOAD
from truefuse.verdict import Result, Status

PR_SET_PDEATHSIG = 1  # of Linux
COMPILE = "compile kernels"  # a step, no gate


def main() -> None:
    """The one argument is the request as JSON; answers go to the pipe that it names."""
    faulthandler.enable()
    request, send = answering()
    end_with_parent(request["parent"])
    is_simulated = request["device"].startswith("sim:")
    device = torch.device("cpu" if is_simulated else request["device"])
    try:
        torch.ones(1, device=device).add(1).item()
    except RuntimeError as error:
        send("no-device", text=str(error).splitlines()[0])
        return
    # Gates run without gradients.
    with torch.no_grad():
        before = flags.snapshot(device)
    send("step", name=LOAD)
    try:
        case = cases.load(request["target"])
        contract = contract_of(case)
    except cases.NotFound as error:
        send("no-case", text=str(error))
        return
    except (cases.CaseError, RuntimeError) as error:
        send("result", result=_raised(error, request).to_json())
        send("end")
        return
    if device.type == "cpu" and not is_simulated and describe.is_simulated(case.operator):
        text = f"on the CPU {case.operator} runs in the simulator, whose speed says nothing: "
        send(
            "no-case",
            text=text + "check it with --device sim:wave64, or name a function in 'cpu:'.",
        )
        return
    if is_simulated and not describe.has_kernel(case.operator):
        text = (
            f"{case.operator} has no kernel to simulate: its description names Python functions. "
        )
        send("no-case", text=text + "Check it on the device that they are for.")
        return
    if not describe.runs_on(case.operator, device.type):
        text = (
            f"{case.operator} names no function for this device: check it with another --device, "
        )
        send("no-case", text=text + "or name one in its description.")
        return
    try:
        with torch.no_grad():
            case_check.ask(case, device, contract)
    except cases.CaseError as error:
        send("result", result=_raised(error, request).to_json())
        send("end")
        return
    with torch.no_grad():
        at_start = flags.snapshot(device)
    changed = flags.changes(before, at_start)
    asked = (request["seed"], request["target"], contract)
    on_result = lambda result: send("result", result=result.to_json())  # noqa: E731
    on_step = lambda name: send("step", name=name)  # noqa: E731
    if is_simulated:
        from truefuse import simulate_check

        context = in_place.judged(simulate_check.context(case, request["device"], *asked))
        report = simulate_check.run(context, request["only"], on_result, on_step)
    else:
        context = in_place.judged(Context(case, device, *asked, changed, at_start))
        if device.type == "cuda" and not request["only"]:
            on_step(COMPILE)
            with torch.no_grad():
                ahead.compile_ahead(context)
        progress = lambda text: send("progress", text=text)  # noqa: E731
        report = check.run(context, request["only"], on_result, progress, on_step, request["share"])
    send("report", report=report.to_json())


def answering() -> tuple[dict[str, Any], Callable[..., None]]:
    """The request, and how to answer: send(kind, **content)."""
    request = json.loads(sys.argv[1])
    pipe = os.fdopen(request["pipe"], "w", encoding="utf-8", buffering=1)
    # Whoever the case forks off has no answers of its own, and holds nobody up.
    os.register_at_fork(after_in_child=lambda: os.close(request["pipe"]))

    def send(kind: str, **content: Any) -> None:
        pipe.write(json.dumps({"kind": kind, **content}) + "\n")

    return request, send


def end_with_parent(parent: int) -> None:
    """A child in a session of its own hears nothing of a parent that is killed, and would go on for ever in
    a call that hangs. Nor does the system say anything of one that was killed before it was asked to."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _raised(error: Exception, request: dict[str, Any]) -> Result:
    honest = isinstance(error, cases.NotJudged)
    return Result(
        LOAD,
        Status.UNKNOWN if honest else Status.FAIL,
        "not-judged" if honest else "case-raises",
        str(error),
        expected="a case",
        got=str(error),
        first=request["target"],
        seed=request["seed"],
        replay=command_line.of("check", request["target"], request["device"], request["seed"]),
        traceback="".join(traceback.format_exception(error)),
    )


def contract_of(case: cases.Case) -> Mapping[str, Any] | None:
    """Raises RuntimeError for an operator that is not registered, or a text that is no contract."""
    from truefuse import _native

    if isinstance(case.contract, str):
        return _native.contract(case.contract)
    if case.contract is not None or case.operator is None:
        return case.contract
    for known in _native.operators():
        if f"{known['namespace']}::{known['name']}" == case.operator:
            return known["contract"]
    raise RuntimeError(f"the case names the operator '{case.operator}', which is not registered")


if __name__ == "__main__":
    main()
