"""Kernels are cached by content, in a folder that only the user can write."""

from __future__ import annotations

import gc
import hashlib
import os
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reclick
from reclick.runtime import jit

SOURCE = '''
"""Kernels of a test."""
import numpy as np
from reclick.runtime.jit import kernel
import shared

SCALE = 2.0
TABLE = np.arange(3000.0)
PAIR = (1, (2, TABLE))

@kernel
def inner(x):
    """Add one."""
    return x + 1.0 + PAIR[0]

@kernel
def outer(x):
    # twice
    return SCALE * inner(x) + TABLE[0] + shared.OFFSET
'''


def load_kernels(source: str, offset: float = 0.0) -> types.ModuleType:
    shared, module = types.ModuleType("shared"), types.ModuleType("kernels")
    vars(shared)["OFFSET"] = offset
    before = sys.modules.get("shared")
    sys.modules["shared"] = shared
    try:
        exec(compile(source, "kernels.py", "exec"), vars(module))  # noqa: S102
    finally:
        if before is None:
            del sys.modules["shared"]
    return module


def key(source: str, name: str = "outer", offset: float = 0.0) -> str:
    return str(getattr(load_kernels(source, offset), name)._cache.content_key())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of its own for kernels of this process."""
    monkeypatch.setenv("RECLICK_CACHE_DIR", str(tmp_path / "cache"))
    jit.cache_folder.cache_clear()
    yield tmp_path / "cache" / "kernels"
    jit.cache_folder.cache_clear()


SUBKERNEL = """
import numpy as np
from reclick.runtime.jit import kernel, subkernel

STEP = 1.0

@subkernel
def add(x, n):
    return x + STEP * n

@kernel
def outer(x):
    return add(x, 1)

@kernel
def twice(x):
    return 2.0 * add(x, 1)
"""


def load_subkernel() -> types.ModuleType:
    module = types.ModuleType("kernels")
    exec(compile(SUBKERNEL, "kernels.py", "exec"), vars(module))  # noqa: S102
    return module


def test_a_subkernel_is_compiled_into_its_callers_and_python_calls_the_plain_function(
    folder: Path,
) -> None:
    module = load_subkernel()
    assert module.add(1.0, 2) == 3.0  # before and after it is compiled
    assert module.outer(1.0) == 2.0
    assert module.add(x=1.0, n=2) == 3.0
    assert len(module.add.overloads) == 1
    assert [path.name.split("-")[0] for path in folder.glob("*.kernel")] == ["outer"]


def test_a_constant_of_a_subkernel_replaced_after_its_first_use_is_never_cached(
    folder: Path,
) -> None:
    module = load_subkernel()
    assert module.outer(1.0) == 2.0
    vars(module)["STEP"] = 5.0  # the subkernel is compiled with 1
    module.twice(1.0)
    assert [path.name.split("-")[0] for path in folder.glob("*.kernel")] == ["outer"]
    assert key_of_subkernel(module) != key_of_subkernel(load_subkernel())


def key_of_subkernel(module: types.ModuleType) -> str:
    return jit.content_key(module.outer.py_func)


def test_garbage_is_not_collected_while_a_kernel_compiles_and_is_afterwards(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enabled = []
    save = jit.KernelCache.save_overload

    def look(*arguments: Any) -> None:
        enabled.append(gc.isenabled())
        save(*arguments)

    monkeypatch.setattr(jit.KernelCache, "save_overload", look)
    load_subkernel().outer(1.0)
    assert gc.isenabled()
    gc.disable()
    try:
        load_subkernel().twice(1.0)
        assert not gc.isenabled()  # as it was
    finally:
        gc.enable()
    assert enabled == [False, False]


# ---- the key


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x + 1.0", "x + 1.5"),
        ("x + 1.0", "x - 1.0"),
        ("SCALE = 2.0", "SCALE = 3.0"),
        ("SCALE = 2.0", "SCALE = 2"),
        ("np.arange(3000.0)", "np.arange(3000.0) + (np.arange(3000) == 1500)"),
        ("PAIR = (1,", "PAIR = (4,"),
    ],
    ids=["callee's constant", "callee's code", "global", "type of global", "array", "tuple"],
)
def test_the_key_changes_with_what_the_machine_code_depends_on(old: str, new: str) -> None:
    assert old in SOURCE
    assert key(SOURCE.replace(old, new)) != key(SOURCE)


def test_the_key_changes_with_a_constant_of_another_module() -> None:
    assert key(SOURCE, offset=1.0) != key(SOURCE)


def test_the_key_changes_with_a_kernel_of_another_module() -> None:
    """Finding 2: numba knows the file of the caller only."""
    callee = "from reclick.runtime.jit import kernel\n@kernel\ndef add(x):\n    return x + 1.0\n"
    caller = "from reclick.runtime.jit import kernel\n@kernel\ndef outer(x):\n    return add(x)\n"
    keys = set()
    for source in (callee, callee.replace("x + 1.0", "x + 2.0")):
        other, module = types.ModuleType("other"), types.ModuleType("kernels")
        exec(compile(source, "other.py", "exec"), vars(other))  # noqa: S102
        vars(module)["add"] = vars(other)["add"]
        exec(compile(caller, "kernels.py", "exec"), vars(module))  # noqa: S102
        keys.add(module.outer._cache.content_key())
    assert len(keys) == 2


def test_the_key_of_a_callee_does_not_depend_on_its_callers() -> None:
    changed = SOURCE.replace("SCALE = 2.0", "SCALE = 3.0")
    assert key(changed, "inner") == key(SOURCE, "inner")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# twice", "# two times\n    # it is doubled"),
        ('"""Add one."""', '"""Add exactly one."""'),
        ("SCALE = 2.0", "\n\nOTHER = 7\nSCALE = 2.0"),
        ("def inner(x):", "def unused(x):\n    return x\n\n@kernel\ndef inner(x):"),
    ],
    ids=["comment", "docstring", "unrelated constant", "unrelated kernel"],
)
def test_the_key_does_not_change_with_what_the_machine_code_ignores(old: str, new: str) -> None:
    assert old in SOURCE
    assert key(SOURCE.replace(old, new)) == key(SOURCE)


def test_a_closure_is_part_of_the_key() -> None:
    def make(step: float) -> str:
        @jit.kernel
        def add(x: float) -> float:
            return x + step

        cache: jit.KernelCache = add._cache  # type: ignore[attr-defined]
        return str(cache.content_key())

    assert make(1.0) != make(2.0)
    assert make(1.0) == make(1.0)


def test_a_constant_replaced_after_the_first_use_is_never_cached(folder: Path) -> None:
    module = load_kernels(SOURCE)
    assert module.outer(3.0) == 10.0
    entries = set(folder.iterdir())
    vars(module)["PAIR"] = (100, (2, module.TABLE))
    module.outer(np.float32(3.0))  # another signature: compiled with an old or a new constant
    assert module.inner._cache.content_key() is None
    assert module.outer._cache.content_key() is None
    assert set(folder.iterdir()) == entries


def test_a_literal_argument_compiles_no_signature_of_its_own(folder: Path) -> None:
    source = (
        "from reclick.runtime.jit import kernel\n@kernel\ndef inner(x, k):\n    return x + k\n"
        "@kernel\ndef outer(x):\n    return inner(x, 1) + inner(x, 2) + inner(x, 3)\n"
    )
    module = load_kernels(source)
    assert module.outer(1.0) == 9.0
    assert len(module.inner.signatures) == 1


# ---- entries


def compiled(
    monkeypatch: pytest.MonkeyPatch, source: str = SOURCE, offset: float = 0.0
) -> tuple[float, int]:
    """What a kernel gives that was not used before, and how many kernels were compiled for that."""
    saved: list[object] = []
    save = jit.KernelCache.save_overload

    def count(self: jit.KernelCache, signature: Any, result: Any) -> None:
        saved.append(signature)
        save(self, signature, result)

    with monkeypatch.context() as patched:
        patched.setattr(jit.KernelCache, "save_overload", count)
        return load_kernels(source, offset).outer(3.0), len(saved)


def test_what_was_compiled_before_is_loaded_and_an_edit_compiles_only_what_it_changed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compiled(monkeypatch) == (10.0, 2)
    assert compiled(monkeypatch) == (10.0, 0)
    scaled = SOURCE.replace("SCALE = 2.0", "SCALE = 3.0")
    assert compiled(monkeypatch, scaled) == (15.0, 1)  # the callee is found again
    assert compiled(monkeypatch, SOURCE.replace("x + 1.0", "x + 2.0")) == (12.0, 2)
    assert compiled(monkeypatch, offset=0.5) == (10.5, 1)
    assert compiled(monkeypatch) == (10.0, 0)  # the first entries are still there
    assert len(list(folder.iterdir())) == 6


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "wrong pickle"])
def test_a_damaged_entry_is_compiled_again_and_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    compiled(monkeypatch)
    entries = list(folder.iterdir())
    assert len(entries) == 2
    for entry in entries:
        content = entry.read_bytes()
        spoiled = {
            "cut": content[: len(content) // 2],
            "flipped": content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
            "empty": b"",
            "wrong pickle": hashlib.sha256(b"no").digest() + b"no",
        }[damage]
        entry.write_bytes(spoiled)
    assert compiled(monkeypatch) == (10.0, 2)
    assert compiled(monkeypatch) == (10.0, 0)


def test_an_entry_that_others_could_have_written_is_not_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(monkeypatch)
    for entry in folder.iterdir():
        entry.chmod(0o666)
    assert compiled(monkeypatch) == (10.0, 2)
    for entry in list(folder.iterdir()):
        entry.rename(entry.with_suffix(".real"))
        entry.symlink_to(entry.with_suffix(".real"))
    assert compiled(monkeypatch) == (10.0, 2)


def test_two_processes_may_compile_at_the_same_time(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(SOURCE)
    (tmp_path / "shared.py").write_text("OFFSET = 0.0\n")
    command = [sys.executable, "-c", "import kernels; print(kernels.outer(3.0))"]
    env = {**os.environ, "RECLICK_CACHE_DIR": str(tmp_path / "cache")}
    running = [
        subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate()[0] for process in running] == ["10.0\n"] * 3
    names = [path.name for path in (tmp_path / "cache" / "kernels").iterdir()]
    assert len(names) == 2
    assert not any(name.startswith(".") for name in names)


# ---- the folder


def test_the_folder_can_be_chosen_and_is_private(folder: Path) -> None:
    assert jit.cache_folder() == folder
    assert jit.cache_is_empty()
    assert folder.stat().st_mode & 0o077 == 0
    load_kernels(SOURCE).outer(3.0)
    assert not jit.cache_is_empty()
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())


@pytest.mark.parametrize("shared", ["folder", "parent"])
def test_a_folder_that_others_can_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, shared: str
) -> None:
    chosen = tmp_path / "open" / "cache"
    (chosen / "kernels").mkdir(parents=True)
    ((chosen / "kernels") if shared == "folder" else tmp_path / "open").chmod(0o777)
    monkeypatch.setenv("RECLICK_CACHE_DIR", str(chosen))
    jit.cache_folder.cache_clear()
    try:
        assert jit.cache_folder() is None
        assert "can be written by other users" in caplog.text
        assert load_kernels(SOURCE).outer(3.0) == 10.0
        assert list((chosen / "kernels").iterdir()) == []
    finally:
        jit.cache_folder.cache_clear()


def test_a_sticky_folder_such_as_tmp_is_no_danger(tmp_path: Path) -> None:
    (tmp_path / "tmp" / "mine").mkdir(parents=True)
    (tmp_path / "tmp").chmod(0o1777)
    (tmp_path / "tmp" / "mine").chmod(0o700)
    assert jit.is_private(tmp_path / "tmp" / "mine")
    assert not jit.is_private(tmp_path / "tmp")


def test_where_the_cache_folder_cannot_be_written_the_temporary_one_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "tmp").mkdir()
    monkeypatch.delenv("RECLICK_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    jit.cache_folder.cache_clear()
    try:
        chosen = jit.cache_folder()
        assert chosen is not None
        assert chosen.is_relative_to(tmp_path / "tmp")
        assert jit.is_private(chosen)
    finally:
        jit.cache_folder.cache_clear()


def test_where_there_is_neither_a_home_nor_a_temporary_folder_kernels_work_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Finding 3: `docker run --user 12345` on a read-only system."""

    def no_home(*_: object, **__: object) -> Path:
        raise RuntimeError("could not determine the home directory")  # as platformdirs does

    def no_temporary_folder() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.delenv("RECLICK_CACHE_DIR", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_path", no_home)
    monkeypatch.setattr("tempfile.gettempdir", no_temporary_folder)
    jit.cache_folder.cache_clear()
    try:
        assert load_kernels(SOURCE).outer(3.0) == 10.0
        assert jit.cache_is_empty()
    finally:
        jit.cache_folder.cache_clear()
    assert caplog.text.count("Compiled kernels are not cached") == 1


@pytest.mark.skipif(os.name != "posix", reason="needs modes of files")
def test_new_folders_are_private_whatever_the_umask_and_old_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir(mode=0o755)
    monkeypatch.delenv("RECLICK_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / ".cache"))
    jit.cache_folder.cache_clear()
    before = os.umask(0o002)
    try:
        chosen = jit.cache_folder()
        assert chosen == tmp_path / "home" / ".cache" / "reclick" / "kernels"
    finally:
        os.umask(before)
        jit.cache_folder.cache_clear()
    modes = [path.stat().st_mode & 0o777 for path in (chosen, *chosen.parents[:3])]
    assert modes == [0o700, 0o700, 0o700, 0o755]


def test_old_entries_that_nobody_uses_go_and_files_of_others_stay(folder: Path) -> None:
    folder.mkdir(parents=True, mode=0o700)
    new = folder / "b-0.kernel"
    old = [folder / "a-0.kernel", folder / f".a-0.kernel.{'0' * 32}"]
    others = [folder / name for name in ("my_kernel.cu", "kernel", ".a.kernel.bak")]
    for path in (new, *old, *others):
        path.write_bytes(b"")
    for path in (*old, *others):
        os.utime(path, (0, 0))
    jit._remove_unused.cache_clear()
    load_kernels(SOURCE).outer(3.0)
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in (new, *others))


def test_an_installation_that_cannot_be_written_works_caches_and_can_be_upgraded(
    tmp_path: Path,
) -> None:
    """Findings 2 and 3: after an upgrade the kernels of the old version ran."""
    package = tmp_path / "site" / "reclick"
    shutil.copytree(
        Path(reclick.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    before = sorted(package.rglob("*"))
    for path in (*before, package):
        path.chmod(path.stat().st_mode & ~0o222)
    code = (
        "import numpy as np; from reclick.data.log_record import hash_texts; "
        "hashes = np.zeros(1, np.uint64); "
        "hash_texts(np.array([0, 0]), np.zeros(0, np.uint8), hashes); print(hashes[0] >> 32)"
    )
    env = {"RECLICK_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(package.parent)}
    env["PYTHONDONTWRITEBYTECODE"] = "1"  # root may write anywhere

    def run() -> tuple[str, str]:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout, done.stderr

    assert [run(), run()] == [("3421674722\n", "")] * 2
    assert sorted(package.rglob("*")) == before
    assert list((tmp_path / "kernels").glob("*.kernel"))
    source = package / "data" / "log_record.py"
    old, new = "state ^ (state >> np.uint64(29))", "np.uint64(7 << 32)"
    text = source.read_text(encoding="utf-8")
    assert old in text
    source.chmod(0o644)
    source.write_text(text.replace(old, new), encoding="utf-8")
    os.utime(source, (0, 0))  # a package may bring any time
    assert run() == ("7\n", "")
