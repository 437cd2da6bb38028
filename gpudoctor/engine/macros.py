"""SQL functions of gpudoctor's own, for what many rules would have to write out."""

from __future__ import annotations

UNPROFILED_RATIO = "unprofiled_ratio"

MACROS = {
    UNPROFILED_RATIO: (
        "(dur_ns, observation, warmup) AS coalesce(least(1,"
        " median(dur_ns) FILTER (observation = 'bare' AND warmup IS NOT TRUE)"
        " / avg(dur_ns) FILTER (observation = 'detail')), 1)"
    )
}
"""Name → parameters and body.

`unprofiled_ratio(dur_ns, observation, warmup)` aggregates rows of `steps`: the median unprofiled step over the mean
detailed one, at most 1, and 1 where either was not seen. A profiler that records lines slows the host all through the
step, so a host time in detail steps, times this ratio, is what it is of the unprofiled step.
"""
