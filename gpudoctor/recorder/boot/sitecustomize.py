"""Runs at interpreter start in the recorded process: chains to the sitecustomize it shadows, then waits for torch.

Kept free of gpudoctor imports until torch is there, so that a python that never imports torch (a shell script's
helper, say) pays a few microseconds and nothing else.
"""

import contextlib
import importlib.machinery
import importlib.util
import os
import sys
import types

_PR_SET_PDEATHSIG = 1
_HERE = os.path.dirname(os.path.abspath(__file__))


def _run_shadowed() -> None:
    others = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


class _AfterTorch:
    """A meta path finder that lets the real one load torch, then arms the recorder."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return spec
        loader = spec.loader
        load = loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            load(module)
            _arm()

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _arm() -> None:
    home = os.environ["GPUDOCTOR_HOME"]
    added = home not in sys.path
    if added:
        sys.path.append(home)
    try:
        from gpudoctor.recorder import start

        start.install(os.environ["GPUDOCTOR_RECORDING"])
    except Exception as error:
        reason = f"the recorder could not be loaded beside the script: {error!r}"
        sys.stderr.write(f"gpudoctor: {reason}\n")
        try:
            with open(os.path.join(os.environ["GPUDOCTOR_RECORDING"], "unarmed.txt"), "w", encoding="utf-8") as file:
                file.write(reason)
        except OSError:  # said on standard error already
            pass
    finally:
        if added:
            sys.path.remove(home)


def _end_with_parent() -> None:
    """Has the kernel end this process when gpudoctor, which started it, is killed: nothing is left running.

    Linux only: PR_SET_PDEATHSIG of prctl(2).
    """
    parent = int(os.environ["GPUDOCTOR_PARENT"])
    if sys.platform != "linux" or os.getppid() != parent:
        return
    import ctypes
    import signal

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died in between
        os.kill(os.getpid(), signal.SIGTERM)


def _is_worker() -> bool:
    """A child that never trains. Spawned children may (ranks) or may not (loader workers): those are armed."""
    words = " ".join(getattr(sys, "orig_argv", []))
    return "multiprocessing.resource_tracker" in words or "compile_worker" in words


def _use_worktree() -> None:
    """Points search paths and editable installs that lead into the user's tree at the worktree that is reviewed.

    Their order stays. What the worktree lacks, an environment of packages say, stays where it is.
    """
    tree, worktree = os.environ["GPUDOCTOR_MOVED"].split(os.pathsep)

    def moved(path: str) -> str:
        real = os.path.realpath(path)
        inside = real == tree or real.startswith(os.path.join(tree, ""))
        if not inside or {"site-packages", "dist-packages"} & set(real.split(os.sep)):
            return path
        there = os.path.normpath(os.path.join(worktree, os.path.relpath(real, tree)))
        return there if os.path.exists(there) else path

    sys.path[:] = [moved(path) if path else path for path in sys.path]
    for name, module in list(sys.modules.items()):
        if name.startswith("__editable__"):  # setuptools' finders: packages and namespaces by name
            tables = (getattr(module, "MAPPING", None), getattr(module, "NAMESPACES", None))
            for table in filter(None, tables):
                for key, value in table.items():
                    table[key] = moved(value) if isinstance(value, str) else [moved(one) for one in value]


if os.environ.get("GPUDOCTOR_MOVED"):
    with contextlib.suppress(Exception):  # what then comes from the wrong tree, the review finds out
        _use_worktree()

try:
    _run_shadowed()
except Exception as error:  # what the shadowed file does is the user's; say so and go on, as python itself does
    sys.stderr.write(f"gpudoctor: the environment's own sitecustomize failed: {error!r}\n")

with contextlib.suppress(Exception):  # a system without prctl: then a killed gpudoctor leaves the script running
    _end_with_parent()

if os.environ.get("GPUDOCTOR_RECORDING") and not _is_worker():
    sys.meta_path.insert(0, _AfterTorch())
