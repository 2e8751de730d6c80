"""The paper's evaluation of any models on any log: fitted, scored, compared, and reported."""

from reclick.evaluation.result import Evaluation
from reclick.evaluation.run import evaluate
from reclick.evaluation.splitting import Split, split

__all__ = ["Evaluation", "Split", "evaluate", "split"]
