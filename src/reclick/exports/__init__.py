"""What a search stack takes away: graded judgments in the formats of other tools, and click propensities."""

from reclick.exports.examination import propensities
from reclick.exports.job import Exported
from reclick.exports.judging import judgments
from reclick.exports.objects import to_ir_measures, to_ranx
from reclick.exports.writing import FORMATS, export

__all__ = ["FORMATS", "Exported", "export", "judgments", "propensities", "to_ir_measures", "to_ranx"]
