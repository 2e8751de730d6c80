"""Compare click models on a test log: split, fit, score and report."""

from reclick.evaluation.log_split import Split, split
from reclick.evaluation.result import Evaluation
from reclick.evaluation.run import evaluate, report_model
from reclick.evaluation.views import ReliabilityCurves, TransitionShares

__all__ = [
    "Evaluation",
    "ReliabilityCurves",
    "Split",
    "TransitionShares",
    "evaluate",
    "report_model",
    "split",
]
