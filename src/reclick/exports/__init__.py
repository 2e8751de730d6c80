"""Exports for a search stack: graded judgments in the formats of other tools, and propensities."""

from reclick.exports.judgment_comparison import JudgmentComparison, compare_judgments
from reclick.exports.judgment_files import read_judgments
from reclick.exports.judgment_table import judgments, to_ir_measures, to_ranx
from reclick.exports.ndcg_score import NDCGResult, ndcg
from reclick.exports.propensity_table import propensities
from reclick.exports.registry import EXPORT_FORMATS, export
from reclick.exports.request import ExportResult

__all__ = [
    "EXPORT_FORMATS",
    "ExportResult",
    "JudgmentComparison",
    "NDCGResult",
    "compare_judgments",
    "export",
    "judgments",
    "ndcg",
    "propensities",
    "read_judgments",
    "to_ir_measures",
    "to_ranx",
]
