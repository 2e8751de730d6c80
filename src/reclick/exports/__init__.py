"""What a search stack takes away: graded judgments in the formats of other tools, and click propensities."""

from reclick.exports.judgment_table import judgments
from reclick.exports.propensity_table import propensities
from reclick.exports.python_objects import to_ir_measures, to_ranx
from reclick.exports.registry import FORMATS, export
from reclick.exports.request import Exported

__all__ = [
    "FORMATS",
    "Exported",
    "export",
    "judgments",
    "propensities",
    "to_ir_measures",
    "to_ranx",
]
