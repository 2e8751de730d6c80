"""All models by name. Each is imported at its first use, so that one does not import all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, TypeVar

from reclick.errors import ReclickError, SettingError, UnknownModelError, UsageError
from reclick.runtime.wording import suggest_names

if TYPE_CHECKING:
    from reclick.models.base import ClickModel

Model = TypeVar("Model", bound="type[ClickModel]")
ENTRY_POINTS = "reclick.models"  # the group in which a package announces models of its own
BUILT_IN = {  # name: module and class, in the order of `reclick models`
    "luceclick": ("luceclick", "LuceClick"),
    "multiclick": ("multiclick", "MultiClick"),
    "pm": ("fixed_order", "PM"),
    "am": ("fixed_order", "AM"),
    "icm": ("independent", "ICM"),
    "gctr": ("independent", "GCTR"),
    "rctr": ("independent", "RCTR"),
    "dctr": ("independent", "DCTR"),
    "pbm": ("examination", "PBM"),
    "ubm": ("examination", "UBM"),
    "bbm": ("examination", "BBM"),
    "cm": ("simple_cascade", "CM"),
    "dcm": ("simple_cascade", "DCM"),
    "sdbn": ("simple_cascade", "SDBN"),
    "dbn": ("dbn", "DBN"),
    "ccm": ("ccm", "CCM"),
    "thcm": ("thcm", "THCM"),
    "scan": ("scan", "DirectionalScan"),
    "pom": ("pom", "POM"),
    "crf": ("crf", "CRF"),
    "tcm": ("tcm", "TCM"),
}


class ModelRegistry(Mapping[str, "type[ClickModel]"]):
    """The models by name: Reclick's own, those registered, and those of installed packages.

    Some are for short pages only: `max_page_ads` of a class is None if pages may have any length.

    >>> MODELS["pbm"]
    <class 'reclick.models.examination.PBM'>
    >>> MODELS["pbms"]
    Traceback (most recent call last):
    reclick.errors.UnknownModelError: model: got 'pbms', expected one of luceclick, ..., tcm. \
Did you mean 'pbm'?
    """

    def __init__(self) -> None:
        self._registered: dict[str, type[ClickModel]] = {}

    @cached_property
    def _installed(self) -> dict[str, EntryPoint]:
        """Models that other packages announce, except those with the name of a built-in model."""
        points = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
        return {name: point for name, point in points.items() if name not in BUILT_IN}

    def __getitem__(self, name: str) -> type[ClickModel]:
        return self.find(name)

    def _match(self, name: object) -> str | None:
        """The name of a model, given in any case; None if there is no such model.

        >>> MODELS._match("PBM"), MODELS._match("pbms")
        ('pbm', None)
        """
        lower = name.lower() if isinstance(name, str) else None
        return lower if lower in self else None

    def find(self, name: str, *, argument: str = "model", also: str = "") -> type[ClickModel]:
        """The class of a model, named in any case; an unknown name raises an error.

        `argument` is the name of the caller's argument, and `also` describes other values that the
        caller accepts.
        """
        if not isinstance(name, str):
            raise UnknownModelError(argument, name, f"one of {', '.join(self)}{also}")
        known_name = self._match(name)
        if known_name in self._registered:
            return self._registered[known_name]
        if known_name in BUILT_IN:
            return _load_class(*BUILT_IN[known_name])
        if known_name in self._installed:
            entry_point = self._installed[known_name]
            return self.add(_load_installed(entry_point), expected_name=known_name)
        advice = suggest_names(name.lower(), self, most=1)
        raise UnknownModelError(argument, name, f"one of {', '.join(self)}{also}", advice)

    def add(self, model: Model, *, expected_name: str | None = None) -> Model:
        """Register a class by its `name`, replacing an earlier version of the same class."""
        from reclick.models.base import ClickModel

        if not (isinstance(model, type) and issubclass(model, ClickModel)):
            raise SettingError("model", model, "a subclass of reclick.ClickModel to register")
        for attribute in ("name", "assumes", "reference"):
            if not isinstance(getattr(model, attribute, None), str):
                raise UsageError(
                    f"{model.__name__} has no {attribute}. Give the class a text: "
                    f'{attribute}: ClassVar[str] = "…".'
                )
        name = model.name
        if expected_name is not None and not isinstance(expected_name, str):
            raise SettingError("expected_name", expected_name, "text", or_none=True)
        if expected_name not in (None, name):
            raise UsageError(
                f"The entry point {expected_name!r} of {ENTRY_POINTS} loads {model.__name__}, "
                f"whose name is {name!r}. Give both the same name."
            )
        if name != name.lower() or not name.replace("_", "").replace("-", "").isalnum():
            raise UsageError(
                f"{model.__name__}.name: got {name!r}, expected lowercase letters, digits, _ and -."
            )
        existing = self._registered.get(name)
        if name in BUILT_IN or (existing is not None and _identity(existing) != _identity(model)):
            raise UsageError(
                f"A model {name!r} exists already. Give {model.__name__} another name."
            )
        self._registered[name] = model
        return model

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        return name in BUILT_IN or name in self._registered or name in self._installed

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*BUILT_IN, *self._registered, *self._installed)))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return f"MODELS({', '.join(self)})"


MODELS = ModelRegistry()


def register(model: Model) -> Model:
    """Register a model of your own by its name, for MODELS, `evaluate`, `load` and exports.

    May be used as a decorator. A package announces its models with an entry point instead, so that
    the command line finds them too: `[project.entry-points."reclick.models"]`, then
    `mymodel = "my_package:MyModel"`. `reclick.testing.check_model` checks one.
    """
    return MODELS.add(model)


def _load_class(module: str, name: str) -> type[ClickModel]:
    model: type[ClickModel] = getattr(import_module(f"reclick.models.{module}"), name)
    return model


def _load_installed(entry_point: EntryPoint) -> type[ClickModel]:
    """The class that an installed package announces; its errors name the package."""
    try:
        model: type[ClickModel] = entry_point.load()
    except Exception as error:  # the code of another package may raise anything
        package = "" if entry_point.dist is None else f" of the package {entry_point.dist.name}"
        raise ReclickError(
            f"The model {entry_point.name!r}{package} cannot be loaded: its entry point "
            f"{entry_point.value!r} raised {type(error).__name__}: {error}. Repair or remove the "
            "package."
        ) from error
    return model


def _identity(model: type[ClickModel]) -> tuple[str, str]:
    return model.__module__, model.__qualname__
