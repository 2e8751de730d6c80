"""Click models. `MODELS` has them all by name; the module of one is imported when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from reclick.models.registry import BUILT_IN, MODELS, register

if TYPE_CHECKING:
    from reclick.models.base import ClickModel
    from reclick.models.batching import RankedSequence
    from reclick.models.ccm import CCM
    from reclick.models.crf import CRF
    from reclick.models.dbn import DBN
    from reclick.models.examination import BBM, PBM, UBM
    from reclick.models.fixed_order import AM, PM
    from reclick.models.independent import DCTR, GCTR, ICM, RCTR
    from reclick.models.loading import load, updating
    from reclick.models.luceclick import LuceClick
    from reclick.models.multiclick import MultiClick
    from reclick.models.pom import POM
    from reclick.models.scan import DirectionalScan
    from reclick.models.settings import Setting, setting
    from reclick.models.simple_cascade import CM, DCM, SDBN
    from reclick.models.tcm import TCM
    from reclick.models.thcm import THCM

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
]
_HOME = {
    "ClickModel": "base",
    "RankedSequence": "batching",
    "Setting": "settings",
    "load": "loading",
    "setting": "settings",
    "updating": "loading",
    **{class_name: module for module, class_name in BUILT_IN.values()},
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'reclick.models' has no attribute {name!r}")
    return getattr(import_module(f"reclick.models.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
