"""Everything that can go wrong, and the exit code each kind maps to.

GpuDoctorError                exit 2   base: one message that says what was found, where, and what to do
├── UsageError                exit 2   the command line or configuration is not usable
├── InputError                exit 2   a file or folder is not what it should be
├── RecordingError            exit 2   a run could not be recorded
├── RuleError                 exit 2   a rule file is wrong, refused by the sandbox, or ran out of its limits
├── ScriptError               exit 3   the user's script failed where nothing can be said without it
└── InconclusiveError         exit 4   no verdict is possible (no step seen, too noisy, hardware differs)
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Process exit codes. When several apply, the first of SCRIPT order wins: 2, then 3, then 4, then 1."""

    CLEAN = 0
    FINDINGS = 1
    ERROR = 2
    SCRIPT_FAILED = 3
    INCONCLUSIVE = 4


class GpuDoctorError(Exception):
    """Base of every error that gpudoctor raises on purpose; its text is shown to the user as it is."""

    exit_code = ExitCode.ERROR


class UsageError(GpuDoctorError):
    """The command line or the configuration is not usable."""


class InputError(GpuDoctorError):
    """A file or folder is not what it should be."""


class RecordingError(GpuDoctorError):
    """A run could not be recorded."""


class RuleError(GpuDoctorError):
    """A rule file is wrong, was refused by the sandbox, or ran out of its limits."""


class ScriptError(GpuDoctorError):
    """The user's script failed where nothing can be said without it."""

    exit_code = ExitCode.SCRIPT_FAILED


class InconclusiveError(GpuDoctorError):
    """No verdict is possible."""

    exit_code = ExitCode.INCONCLUSIVE
