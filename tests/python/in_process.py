"""A check without the child: the stand-in library lives in the test's own process."""

import torch

from truefuse import case as cases
from truefuse import check, supervise, worker
from truefuse.context import Context


def check_in_process(request, on_result=lambda result: None, progress=lambda text: None):
    """Takes the place of `supervise.run`."""
    try:
        case = cases.load(request.target)
    except cases.NotFound as error:
        raise supervise.NoCase(str(error)) from error
    contract = worker.contract_of(case)
    subject = Context(case, torch.device(request.device), request.seed, request.target, contract)
    return check.run(subject, request.only, on_result, progress, share=request.share)
