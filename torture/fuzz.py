"""Coverage-guided fuzzing of the readers with atheris: `make fuzz FORMAT=ubi MINUTES=20`.

Atheris records which branches of the readers an input takes, and keeps inputs that take new ones.
Any exception except a ReclickError ends the run, and the input is saved in torture/work/fuzz.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import pkgutil
import sys
import tempfile
from pathlib import Path
from typing import Any

WORK = Path(__file__).parent / "work" / "fuzz"


def main() -> None:
    """Fuzz until the time is over or an input breaks a reader."""
    parser = argparse.ArgumentParser(prog="python -m torture.fuzz", description=__doc__)
    parser.add_argument("--format", default="sessions", help="the format whose reader is fuzzed")
    parser.add_argument(
        "--suffix", default="jsonl", help="suffix of the file, with --format sessions"
    )
    parser.add_argument("--minutes", type=float, default=20.0)
    options = parser.parse_args()
    try:
        import atheris
    except ImportError:
        sys.exit(
            "atheris is not installed, and has no wheels for every system: pip install atheris"
        )
    packages = ["reclick.logs", "reclick.data"]
    with atheris.instrument_imports(include=packages, exclude=list_kernel_modules()):
        import reclick as rc
        from reclick.errors import ReclickError
        from torture.inputs import seed_files

        import_readers()  # must be the first import of the readers
    seeds = [seed for seed in seed_files() if seed.format == options.format]
    if options.format == "sessions":
        seeds = [seed for seed in seeds if seed.name.endswith(f".{options.suffix}")]
    if not seeds:
        names = sorted({seed.format for seed in seed_files()})
        parser.error(f"no seed of {options.format!r}. There are {', '.join(names)}.")
    corpus = WORK / f"{options.format}-{seeds[0].name.rpartition('.')[2]}"
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        (corpus / f"seed-{seed.name}").write_bytes(seed.content[:20_000])
    logging.getLogger("reclick").setLevel(logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    path = folder / seeds[0].name
    format_name = None if options.format == "sessions" else options.format

    def read(content: bytes) -> None:
        path.write_bytes(content)
        try:
            log: Any = rc.read_sessions(path, format=format_name, on_error="drop")
            for _ in log.batches():
                pass
        except ReclickError:
            pass

    arguments = [sys.argv[0], f"-max_total_time={int(options.minutes * 60)}", "-rss_limit_mb=3000"]
    atheris.Setup([*arguments, f"-artifact_prefix={WORK}/broken-", str(corpus)], read)
    atheris.Fuzz()


def list_kernel_modules() -> list[str]:
    """Modules with kernels, which must not be instrumented: numba compiles their bytecode."""
    source = Path(__file__).parent.parent / "src"
    return [
        ".".join(path.relative_to(source).with_suffix("").parts)
        for path in source.rglob("*.py")
        if "from reclick.runtime.jit import" in path.read_text(encoding="utf-8")
    ]


def import_readers() -> None:
    """Import all modules that read logs; Reclick imports them when they are needed."""
    import reclick.logs as logs

    for module in pkgutil.walk_packages(logs.__path__, "reclick.logs."):
        importlib.import_module(module.name)


if __name__ == "__main__":
    main()
