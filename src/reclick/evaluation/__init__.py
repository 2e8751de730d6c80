"""The paper's evaluation of any models on any log: fitted, scored, compared, and reported."""

from reclick.evaluation.log_split import Split, split
from reclick.evaluation.result import Evaluation
from reclick.evaluation.run import evaluate

__all__ = ["Evaluation", "Split", "evaluate", "split"]
