"""The layers of src/reclick, top down: a package imports only what stands below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[2] / "src" / "reclick"

# Packages and modules of one line do not import each other.
LAYERS = (
    ("__main__", "testing"),
    ("cli",),
    ("service",),
    ("report",),
    ("auction", "datasets", "evaluation"),
    ("exports", "metrics", "simulation"),
    ("predictor", "profile", "rankings"),
    ("models",),
    ("fitting",),
    ("clicks",),
    ("engines",),
    ("text",),
    ("logs",),
    ("data",),
    ("runtime",),
    ("errors",),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
ROOT = "reclick"  # the public names, which are above everything but the entry points

# Imports up, when a method is called (decision 16): `Evaluation.to_html` and
# `MechanismComparison.to_html` show themselves, and `ClickModel.report` evaluates the model.
ALLOWED = {("auction", "report"), ("evaluation", "report"), ("models", "evaluation")}


class Import(NamedTuple):
    """One import of a reclick module by another."""

    importer: str  # dotted, below reclick
    imported: str
    line: int
    lazy: bool  # inside a function


def module_name(path: Path, source: Path = SOURCE) -> str:
    """The dotted name of a file, below reclick."""
    name = ".".join(path.relative_to(source).with_suffix("").parts)
    return name.removesuffix(".__init__")


def read_imports(source: Path = SOURCE) -> list[Import]:
    """Every import of a reclick module, except those for type checking only."""
    return [
        each for path in sorted(source.rglob("*.py")) for each in _imports_of_file(path, source)
    ]


def _imports_of_file(path: Path, source: Path) -> Iterator[Import]:
    importer = module_name(path, source)
    package = importer if path.name == "__init__.py" else importer.rpartition(".")[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    yield from _imports_below(tree, importer, package, lazy=False)


def _imports_below(node: ast.AST, importer: str, package: str, *, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.ImportFrom | ast.Import):
            base = f"{_base(child, package)}." if isinstance(child, ast.ImportFrom) else ""
            for name in _below_reclick([f"{base}{alias.name}" for alias in child.names]):
                yield Import(importer, name, child.lineno, lazy)
        inside = lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from _imports_below(child, importer, package, lazy=inside)


def _base(node: ast.ImportFrom, package: str) -> str:
    """The module that names are imported from, relative ones resolved."""
    if node.level == 0:
        return node.module or ""
    parts = ["reclick", *package.split(".")] if package else ["reclick"]
    parts = parts[: len(parts) - (node.level - 1)]
    return ".".join([*parts, *(node.module or "").split(".")]).rstrip(".")


def _below_reclick(names: list[str]) -> Iterator[str]:
    """Modules below reclick; the package itself, which has everything, is ROOT."""
    for name in names:
        if name == "reclick":
            yield ROOT
        elif name.startswith("reclick."):
            below = name.removeprefix("reclick.")
            known = below.split(".")[0] in LEVEL or below == "__version__"
            yield below if known else f"{ROOT}.{below}"


def find_violations(imports: list[Import]) -> list[str]:
    """Imports that point up, or sideways within a layer."""
    return [
        f"{each.importer}:{each.line} imports {each.imported}, which stands above or beside it"
        for each in imports
        if _breaks(each)
    ]


def _breaks(each: Import) -> bool:
    upper, lower = each.importer.split(".")[0], each.imported.split(".")[0]
    if lower == ROOT:
        return upper in LEVEL and LEVEL[upper] > 1
    if upper == lower or upper not in LEVEL or lower not in LEVEL:
        return False
    if each.lazy and (upper, lower) in ALLOWED:
        return False
    return LEVEL[lower] <= LEVEL[upper]


def find_single_importers(source: Path = SOURCE) -> dict[str, str]:
    """Modules that exactly one other module imports, and that module.

    A name that a package passes on counts as an import of the module that defines it. Such a module
    has readers outside its package, so it is never listed.
    """
    packages = {
        module_name(path, source) for path in source.rglob("__init__.py") if not _has_code(path)
    }
    modules = {module_name(path, source) for path in source.rglob("*.py")} - packages
    imports = read_imports(source)
    passed_on = _find_reexports(imports, packages)
    importers: dict[str, set[str]] = {name: set() for name in modules}
    for each in imports:
        target = passed_on.get(each.imported, each.imported)
        target = target if target in modules else target.rpartition(".")[0]
        if target in importers and each.importer not in packages and target != each.importer:
            importers[target].add(each.importer)
    offered = {target.rpartition(".")[0] for target in passed_on.values()}
    return {
        name: next(iter(who))
        for name, who in importers.items()
        if len(who) == 1 and name not in offered
    }


def _has_code(path: Path) -> bool:
    """Whether a file defines something, and does not only pass names on."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in body)


def _find_reexports(imports: list[Import], packages: set[str]) -> dict[str, str]:
    """Where names that packages pass on are defined: {"logs.as_log": "logs.coerce.as_log"}."""
    return {
        f"{each.importer}.{each.imported.rpartition('.')[2]}": each.imported
        for each in imports
        if each.importer in packages
    }
