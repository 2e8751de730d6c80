"""Every model by its name."""

from __future__ import annotations

from reclick.models.am import AM
from reclick.models.base import ClickModel
from reclick.models.batching import RankedSequence
from reclick.models.bbm import BBM
from reclick.models.ccm import CCM
from reclick.models.cm import CM
from reclick.models.ctr import DCTR, GCTR, RCTR
from reclick.models.dbn import DBN
from reclick.models.dcm import DCM
from reclick.models.icm import ICM
from reclick.models.luceclick import LuceClick
from reclick.models.multiclick import MultiClick
from reclick.models.pbm import PBM
from reclick.models.persistence import load
from reclick.models.pm import PM
from reclick.models.sdbn import SDBN
from reclick.models.thcm import THCM
from reclick.models.ubm import UBM

MODELS: dict[str, type[ClickModel]] = {
    model.name: model
    for model in (
        MultiClick,
        LuceClick,
        PM,
        AM,
        ICM,
        GCTR,
        RCTR,
        DCTR,
        PBM,
        UBM,
        BBM,
        CM,
        DCM,
        SDBN,
        DBN,
        CCM,
        THCM,
    )
}

__all__ = [
    "AM",
    "BBM",
    "CCM",
    "CM",
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
    "THCM",
    "UBM",
    "ClickModel",
    "LuceClick",
    "MultiClick",
    "RankedSequence",
    "load",
]
