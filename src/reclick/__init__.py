"""Click models for search ads: what attracts users, what satisfies them, what they click next.

Start with `read_sessions`, fit a model (`LuceClick`, `MultiClick`, `UBM`, …), ask it for
`click_prob`, `relevance` or `rank_sequences`, compare models with `evaluate`, and hand judgments
to other tools with `export`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from reclick import datasets
    from reclick.auction import (
        AuctionResult,
        AuctionSimulation,
        AuctionUncertainty,
        BestPage,
        Displacement,
        Interval,
        MechanismComparison,
        PriceReason,
        best_page,
        compare_mechanisms,
        incentive_report,
        price_intervals,
        rank_pages,
        run_auction,
        run_auctions,
        sample_bids,
        simulate_auctions,
    )
    from reclick.clicks.distribution import Clicks, PageDistribution, SequenceRanks, TopSequences
    from reclick.data.batch import SessionBatch
    from reclick.data.counts import Counts
    from reclick.data.frames import (
        to_latex,
        to_pandas,
        to_polars,
    )
    from reclick.data.grouped_sessions import BlockRows, GroupedSessions, QueryBlock
    from reclick.data.log_record import LogRecord
    from reclick.engines import Engine, LocalEngine, count
    from reclick.engines.duckdb import DuckDBEngine
    from reclick.engines.pool import PoolEngine
    from reclick.engines.ray import RayEngine
    from reclick.engines.spark import SparkEngine
    from reclick.engines.warehouse import CountingSQL, counting_sql
    from reclick.errors import (
        Argument,
        BadRowsError,
        CannotAnswerError,
        EngineError,
        FitError,
        LogError,
        MissingExtraError,
        NotFittedError,
        ReclickError,
        SeenLogError,
        SettingError,
        StoreError,
        UnknownModelError,
        UsageError,
    )
    from reclick.evaluation import (
        Evaluation,
        ReliabilityCurves,
        Split,
        TransitionShares,
        evaluate,
        split,
    )
    from reclick.evaluation.monitoring import MonitoredGroup, MonitorLimits, MonitorReport, monitor
    from reclick.exports import (
        ExportResult,
        JudgmentComparison,
        NDCGResult,
        compare_judgments,
        export,
        judgments,
        ndcg,
        propensities,
        read_judgments,
        to_ir_measures,
        to_ranx,
    )
    from reclick.fitting.order_table import OrderTable
    from reclick.fitting.posterior import RelevanceDraws
    from reclick.logs import (
        Cleaning,
        ReadSummary,
        SessionLog,
        convert,
        read_ads,
        read_bids,
        read_labels,
        read_sessions,
    )
    from reclick.logs.events import sessions_from_events
    from reclick.logs.read_summary import BadRow
    from reclick.models import (
        AM,
        BBM,
        CCM,
        CM,
        CRF,
        DBN,
        DCM,
        DCTR,
        GCTR,
        ICM,
        MODELS,
        PBM,
        PM,
        POM,
        RCTR,
        SDBN,
        TCM,
        THCM,
        UBM,
        ClickModel,
        DirectionalScan,
        LuceClick,
        MultiClick,
        RankedSequence,
        Setting,
        load,
        register,
        setting,
        updating,
    )
    from reclick.models.bucketed_model import BucketedModel
    from reclick.models.buckets import BucketWriter, WrittenBucket
    from reclick.models.explanation import Explanation, PriorLevel, WordEffect
    from reclick.models.kernels.stops_and_transitions import StopsAndTransitions
    from reclick.models.provenance import SeenLog
    from reclick.models.query_rows import TrainingTotals
    from reclick.models.registry import ModelRegistry
    from reclick.predictor import Predictions, PredictionSummary, Predictor, predict
    from reclick.profile import LogProfile, VolumeProfile, describe
    from reclick.rankings import (
        RankingComparison,
        RankingEstimate,
        compare_rankings,
    )
    from reclick.runtime.filesystem import FileStatus, RemotePath
    from reclick.runtime.parallel import limit_threads
    from reclick.simulation import Simulation, Truth, simulate
    from reclick.text.tokens import tokens

# The module of each public name. A module is imported when one of its names is first used, so that
# `import reclick` and `reclick --help` are fast.
_HOMES = {
    "reclick.data.frames": (
        "to_latex",
        "to_pandas",
        "to_polars",
    ),
    "reclick.rankings": (
        "RankingComparison",
        "RankingEstimate",
        "compare_rankings",
    ),
    "reclick.auction": (
        "AuctionResult",
        "AuctionSimulation",
        "AuctionUncertainty",
        "BestPage",
        "Displacement",
        "Interval",
        "MechanismComparison",
        "PriceReason",
        "best_page",
        "compare_mechanisms",
        "incentive_report",
        "price_intervals",
        "rank_pages",
        "run_auction",
        "run_auctions",
        "sample_bids",
        "simulate_auctions",
    ),
    "reclick.clicks.distribution": (
        "Clicks",
        "PageDistribution",
        "SequenceRanks",
        "TopSequences",
    ),
    "reclick.data.batch": ("SessionBatch",),
    "reclick.data.counts": ("Counts",),
    "reclick.data.grouped_sessions": (
        "GroupedSessions",
        "BlockRows",
        "QueryBlock",
    ),
    "reclick.data.log_record": ("LogRecord",),
    "reclick.engines": (
        "Engine",
        "LocalEngine",
        "count",
    ),
    "reclick.engines.duckdb": ("DuckDBEngine",),
    "reclick.engines.pool": ("PoolEngine",),
    "reclick.engines.ray": ("RayEngine",),
    "reclick.engines.warehouse": ("CountingSQL", "counting_sql"),
    "reclick.engines.spark": ("SparkEngine",),
    "reclick.errors": (
        "Argument",
        "BadRowsError",
        "CannotAnswerError",
        "EngineError",
        "FitError",
        "LogError",
        "MissingExtraError",
        "NotFittedError",
        "ReclickError",
        "SeenLogError",
        "SettingError",
        "StoreError",
        "UnknownModelError",
        "UsageError",
    ),
    "reclick.evaluation": (
        "Evaluation",
        "ReliabilityCurves",
        "Split",
        "TransitionShares",
        "evaluate",
        "split",
    ),
    "reclick.evaluation.monitoring": (
        "MonitorLimits",
        "MonitorReport",
        "MonitoredGroup",
        "monitor",
    ),
    "reclick.exports": (
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
    ),
    "reclick.fitting.posterior": ("RelevanceDraws",),
    "reclick.fitting.order_table": ("OrderTable",),
    "reclick.logs.read_summary": ("BadRow",),
    "reclick.models.kernels.stops_and_transitions": ("StopsAndTransitions",),
    "reclick.models.query_rows": ("TrainingTotals",),
    "reclick.models.registry": ("ModelRegistry",),
    "reclick.logs": (
        "Cleaning",
        "ReadSummary",
        "SessionLog",
        "convert",
        "read_ads",
        "read_bids",
        "read_labels",
        "read_sessions",
    ),
    "reclick.logs.events": ("sessions_from_events",),
    "reclick.models": (
        "AM",
        "BBM",
        "CCM",
        "CM",
        "CRF",
        "DBN",
        "DCM",
        "DCTR",
        "GCTR",
        "ICM",
        "MODELS",
        "PBM",
        "PM",
        "RCTR",
        "SDBN",
        "POM",
        "TCM",
        "THCM",
        "UBM",
        "ClickModel",
        "DirectionalScan",
        "LuceClick",
        "MultiClick",
        "RankedSequence",
        "Setting",
        "load",
        "register",
        "setting",
        "updating",
    ),
    "reclick.models.explanation": (
        "Explanation",
        "PriorLevel",
        "WordEffect",
    ),
    "reclick.models.buckets": ("BucketWriter", "WrittenBucket"),
    "reclick.models.bucketed_model": ("BucketedModel",),
    "reclick.models.provenance": ("SeenLog",),
    "reclick.predictor": (
        "PredictionSummary",
        "Predictions",
        "Predictor",
        "predict",
    ),
    "reclick.profile": (
        "LogProfile",
        "VolumeProfile",
        "describe",
    ),
    "reclick.runtime.filesystem": (
        "FileStatus",
        "RemotePath",
    ),
    "reclick.runtime.parallel": ("limit_threads",),
    "reclick.simulation": (
        "Simulation",
        "Truth",
        "simulate",
    ),
    "reclick.text.tokens": ("tokens",),
}
_MODULES = ("datasets",)  # public modules
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AM",
    "BBM",
    "CCM",
    "CM",
    "CRF",
    "DBN",
    "DCM",
    "DCTR",
    "GCTR",
    "ICM",
    "MODELS",
    "PBM",
    "PM",
    "POM",
    "RCTR",
    "SDBN",
    "TCM",
    "THCM",
    "UBM",
    "Argument",
    "AuctionResult",
    "AuctionSimulation",
    "AuctionUncertainty",
    "BadRow",
    "BadRowsError",
    "BestPage",
    "BlockRows",
    "BucketWriter",
    "BucketedModel",
    "CannotAnswerError",
    "Cleaning",
    "ClickModel",
    "Clicks",
    "CountingSQL",
    "Counts",
    "DirectionalScan",
    "Displacement",
    "DuckDBEngine",
    "Engine",
    "EngineError",
    "Evaluation",
    "Explanation",
    "ExportResult",
    "FileStatus",
    "FitError",
    "GroupedSessions",
    "Interval",
    "JudgmentComparison",
    "LocalEngine",
    "LogError",
    "LogProfile",
    "LogRecord",
    "LuceClick",
    "MechanismComparison",
    "MissingExtraError",
    "ModelRegistry",
    "MonitorLimits",
    "MonitorReport",
    "MonitoredGroup",
    "MultiClick",
    "NDCGResult",
    "NotFittedError",
    "OrderTable",
    "PageDistribution",
    "PoolEngine",
    "PredictionSummary",
    "Predictions",
    "Predictor",
    "PriceReason",
    "PriorLevel",
    "QueryBlock",
    "RankedSequence",
    "RankingComparison",
    "RankingEstimate",
    "RayEngine",
    "ReadSummary",
    "ReclickError",
    "RelevanceDraws",
    "ReliabilityCurves",
    "RemotePath",
    "SeenLog",
    "SeenLogError",
    "SequenceRanks",
    "SessionBatch",
    "SessionLog",
    "Setting",
    "SettingError",
    "Simulation",
    "SparkEngine",
    "Split",
    "StopsAndTransitions",
    "StoreError",
    "TopSequences",
    "TrainingTotals",
    "TransitionShares",
    "Truth",
    "UnknownModelError",
    "UsageError",
    "VolumeProfile",
    "WordEffect",
    "WrittenBucket",
    "best_page",
    "compare_judgments",
    "compare_mechanisms",
    "compare_rankings",
    "convert",
    "count",
    "counting_sql",
    "datasets",
    "describe",
    "evaluate",
    "export",
    "incentive_report",
    "judgments",
    "limit_threads",
    "load",
    "monitor",
    "ndcg",
    "predict",
    "price_intervals",
    "propensities",
    "rank_pages",
    "read_ads",
    "read_bids",
    "read_judgments",
    "read_labels",
    "read_sessions",
    "register",
    "run_auction",
    "run_auctions",
    "sample_bids",
    "sessions_from_events",
    "setting",
    "simulate",
    "simulate_auctions",
    "split",
    "to_ir_measures",
    "to_latex",
    "to_pandas",
    "to_polars",
    "to_ranx",
    "tokens",
    "updating",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"reclick.{name}")
    if name not in _HOME:
        from reclick.runtime.wording import suggest_names

        advice = suggest_names(name, __all__) or "dir(reclick) lists all names."
        raise AttributeError(f"module 'reclick' has no attribute {name!r}. {advice}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
