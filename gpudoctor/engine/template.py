"""The file that `gpudoctor rules new` writes: a rule that works, to be changed bit by bit."""

from __future__ import annotations

_TEMPLATE = """\
+++
id = "{id}"
name = "{name}"
title = "One sentence that names the problem"   # TODO
since = "0.1"
status = "preview"          # preview: runs with --preview only; stable once its examples convince you
horizon = "step"            # what must be seen for silence to mean anything: step, epoch or run
requires = ["steps"]        # tables without which the rule is not measured; add `optional = [...]` for the rest

[thresholds]                # every number that decides something, with its unit and reason; used as $slow_ratio below
slow_ratio = {{ value = 2.0, unit = "ratio", doc = "TODO: why this value" }}

# [what_if]                 # the change that would save it, of the rows' `events`: drop, scale, merge, unblock, …
# edit = "drop"             # with it the steps are replayed, and the finding gets the price of that

[remedies.fix]              # the first is the default; a column `remedy` picks another
text = "TODO: what to do, in one or two sentences."
# risk = "numerics, memory, reproducibility"
# edit = {{ call = "DataLoader", set = {{ drop_last = "True" }} }}
+++

```sql
-- One row is one finding. The columns are described in docs/rules.md, "Writing a rule".
SELECT NULL AS file, NULL AS line,          -- the user's line to look at
       count(*) AS count,
       sum(dur_ns) // count(*) AS slow_ns,   -- evidence; the suffix gives the unit
       NULL AS cost_ns                       -- time a step that this owns, when it is known
FROM steps
WHERE warmup IS NOT TRUE AND dur_ns > $slow_ratio * (SELECT median(dur_ns) FROM steps)
HAVING count(*) > 0
```

## Message
{{{{ count | plural("step") }}}} took {{{{ slow_ns | ns }}}} each.

## What it means
TODO

## Why it costs time
TODO

## How to fix
TODO

## When this is wrong
TODO

## References
- TODO

## Examples
One step of four is slow.
```toml bad expect=1
steps = [{{ dur_ns = 100 }}, {{ dur_ns = 100 }}, {{ dur_ns = 100 }}, {{ dur_ns = 900 }}]
[[finding]]
count = 1
```

All steps are alike.
```toml good
steps = [{{ dur_ns = 100 }}, {{ dur_ns = 100 }}]
```
"""


def new_rule(rule_id: str, name: str) -> str:
    """The text of a new rule file."""
    return _TEMPLATE.format(id=rule_id, name=name)
