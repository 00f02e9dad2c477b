"""A whole model with and without an operator: equal output first, speed only then.

from truefuse import ab

report = ab.run(ab.Side("baseline", old), ab.Side("candidate", new, hits=count), requests)
"""

from truefuse.ab.engine import run
from truefuse.ab.experiment import Experiment
from truefuse.ab.report import AbReport
from truefuse.ab.sides import Request, Side, Step
from truefuse.ab.speed import Amdahl

__all__ = ["AbReport", "Amdahl", "Experiment", "Request", "Side", "Step", "run"]
