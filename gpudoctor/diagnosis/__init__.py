"""The Diagnosis: what was found, as frozen data; each part in a module of its own."""

from __future__ import annotations

from gpudoctor.diagnosis.compiling import Break, Compilation, CompiledFrame, WhatIf
from gpudoctor.diagnosis.counting import CountAt, Counter, Scope, Unit
from gpudoctor.diagnosis.finding import (
    COMPILE_TIME,
    SEVERITIES,
    Change,
    Evidence,
    Finding,
    Grade,
    Location,
    NotMeasured,
    Passed,
    Remedy,
    Saving,
    Severity,
    SourceLine,
    appliable,
)
from gpudoctor.diagnosis.memory import AllocatorReplay, DeviceMemory, Memory, MemoryReading, MemoryShare, SegmentUse
from gpudoctor.diagnosis.run import Run, run_failed
from gpudoctor.diagnosis.steps import Budget, BudgetShare, CriticalPath, PathShare, Replay, StepTime
from gpudoctor.diagnosis.whole import SCHEMA, Diagnosis, from_json, is_diagnosis, json_schema, to_json, without_source
from gpudoctor.diagnosis.work import GeneratedKernel, KernelLine, Lane, Timeline, Work

__all__ = [
    "COMPILE_TIME",
    "SCHEMA",
    "SEVERITIES",
    "AllocatorReplay",
    "Break",
    "Budget",
    "BudgetShare",
    "Change",
    "Compilation",
    "CompiledFrame",
    "CountAt",
    "Counter",
    "CriticalPath",
    "DeviceMemory",
    "Diagnosis",
    "Evidence",
    "Finding",
    "GeneratedKernel",
    "Grade",
    "KernelLine",
    "Lane",
    "Location",
    "Memory",
    "MemoryReading",
    "MemoryShare",
    "NotMeasured",
    "Passed",
    "PathShare",
    "Remedy",
    "Replay",
    "Run",
    "Saving",
    "Scope",
    "SegmentUse",
    "Severity",
    "SourceLine",
    "StepTime",
    "Timeline",
    "Unit",
    "WhatIf",
    "Work",
    "appliable",
    "from_json",
    "is_diagnosis",
    "json_schema",
    "run_failed",
    "to_json",
    "without_source",
]
