"""Captures torch.compile's structured log in the TORCH_TRACE format, in process, for the script's whole life.

A handler of our own on the logger `torch.__trace` leaves the user's TORCH_LOGS and TORCH_TRACE as they are, prints
nothing, and needs no environment variable. tlparse reads the file too.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from gpudoctor.recorder import torch_private
from gpudoctor.recorder.patches import Patches
from gpudoctor.recorder.place import Place
from gpudoctor.recorder.watch import Watch
from gpudoctor.userfiles import UserFiles

FOLDER = "torch_trace"
FILE = "dedicated_log_torch_trace.log"
_LOGGER = "torch.__trace"


class CompileLog(logging.Handler):
    """Writes the log and counts compilations.

    Attributes:
        started: compilations begun so far, backward graphs included.
        running: compilations under way.
    """

    def __init__(self, place: Place, watch: Watch, files: UserFiles, patches: Patches) -> None:
        super().__init__(logging.DEBUG)
        self._place, self._patches = place, patches
        self._watch, self._files = watch, files
        self._file: Any = None
        self._open: dict[str, tuple[int, dict[str, Any]]] = {}
        self.started = 0
        self.failed: str | None = None
        self._write = torch_private.hidden_from_dynamo(self._emit)
        self.setFormatter(torch_private.trace_formatter())

    def attach(self) -> bool:
        """Starts listening. False when this torch has no structured log."""
        if self.formatter is None:
            return False
        logger = logging.getLogger(_LOGGER)
        logger.setLevel(logging.DEBUG)
        logger.addHandler(self)
        self._hide(logger)
        return True

    def _hide(self, logger: logging.Logger) -> None:
        """Keeps Dynamo from looking at the frames of the logging library when torch logs inside a compiled step."""
        debug = logger.debug
        hidden = torch_private.hidden_from_dynamo(lambda args, kwargs: debug(*args, **kwargs))

        def quiet_debug(*args: Any, **kwargs: Any) -> None:
            # the frames in between do not count: the log names the line in torch that wrote the record
            hidden(args, {**kwargs, "stacklevel": kwargs.get("stacklevel", 1) + 6})

        self._patches.set(logger, "debug", torch_private.as_torch_code(quiet_debug))

    @torch_private.as_torch_code  # Dynamo may look at the frames of whoever logs
    def emit(self, record: logging.LogRecord) -> None:
        """Writes one record; a failure is noted once and never reaches the script."""
        self._write(record)

    def _emit(self, record: logging.LogRecord) -> None:
        metadata = getattr(record, "metadata", None)
        if not isinstance(metadata, dict):
            return
        try:
            self._note(metadata)
            if self._file is None:
                folder = self._place.folder / FOLDER
                folder.mkdir(exist_ok=True)
                self._file = (folder / FILE).open("a", encoding="utf-8", errors="replace")
            self._file.write(self.format(record) + "\n")
            if "compilation_metrics" in metadata:
                self._file.flush()
        except Exception as error:
            self.failed = self.failed or repr(error)

    def _note(self, metadata: dict[str, Any]) -> None:
        compile_id = f"{metadata.get('frame_id')}/{metadata.get('frame_compile_id')}"
        now = self._watch.now()
        if "dynamo_start" in metadata:
            self.started += 1
            # the frame to be compiled does not run yet: the innermost user frame is its caller, which the log can lack
            self._open[compile_id] = now, self._files.site(sys._getframe(1))
        elif "compilation_metrics" in metadata:
            begun, caller = self._open.pop(compile_id, (now, {}))
            self._watch.add("K", begun, now, compile_id, "dynamo", caller.get("file"), caller.get("line"))
        elif "bwd_compilation_metrics" in metadata:
            self.started += 1
            took = metadata["bwd_compilation_metrics"].get("duration_us") or 0
            self._watch.add("K", now - int(took) * 1000, now, compile_id, "backward")

    def detach(self) -> None:
        """Stops listening and closes the file."""
        logging.getLogger(_LOGGER).removeHandler(self)
        if self._file is not None:
            self._file.close()
            self._file = None

    def forget(self) -> None:
        """A forked child starts without the parent's file and counts."""
        self._file, self.started, self._open = None, 0, {}

    def flush(self) -> None:
        """Writes what is buffered."""
        if self._file is not None:
            self._file.flush()

    def owns(self, descriptor: int) -> bool:
        """Whether a file descriptor is the log's own."""
        return self._file is not None and self._file.fileno() == descriptor
