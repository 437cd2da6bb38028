"""Runs scripts one after the other, each as its own forked process of one that has imported torch: seconds saved each.

`python -m tests.run_scripts OUT SCRIPT…` writes what a script printed, and its exit code, to `OUT/<number>.json`.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from pathlib import Path

import torch


def main(out: Path, scripts: list[str]) -> None:
    for number, script in enumerate(scripts):
        printed = out / f"{number}.txt"
        pid = os.fork()
        if pid == 0:
            _run(Path(script), printed)
        _, status = os.waitpid(pid, 0)
        facts = {"code": os.waitstatus_to_exitcode(status), "printed": printed.read_text(encoding="utf-8")}
        (out / f"{number}.json").write_text(json.dumps(facts), encoding="utf-8")


def _run(script: Path, printed: Path) -> None:
    """In the child: the script as `python script` runs it, from its own folder; does not return."""
    with printed.open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(script.parent)
    sys.argv = [script.name]
    sys.path[0] = str(script.parent)
    torch.manual_seed(torch.initial_seed())  # each child begins where a fresh process would
    code = 0
    try:
        runpy.run_path(script.name, run_name="__main__")
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
