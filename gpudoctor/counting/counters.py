"""All counters of a profile."""

from __future__ import annotations

from collections.abc import Mapping

from gpudoctor.counting.names import COUNTERS
from gpudoctor.counting.places import Places
from gpudoctor.counting.run import counts
from gpudoctor.counting.steps import StepCounts
from gpudoctor.diagnosis import Counter
from gpudoctor.profile import Profile


def counters(profile: Profile) -> dict[str, Counter]:
    """The counters by name, in the order of COUNTERS; those of matrix work follow, by dtype."""
    places = Places(profile.sources)
    made = counts(profile, places) | StepCounts(profile, places).all()
    ordered = {name: made[name] for name in COUNTERS if name in made}
    return ordered | {name: found for name, found in made.items() if name not in COUNTERS}


def values(made: Mapping[str, Counter]) -> dict[str, int | None]:
    """The counts alone; null where not measured."""
    return {name: counter.value for name, counter in made.items()}
