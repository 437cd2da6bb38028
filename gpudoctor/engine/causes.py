"""Which finding explains which: the cause graph, made of what rules say about each other and where their findings lie.

A finding that another explains is not a problem of its own: it goes away with its cause. It stays in the diagnosis,
with the fingerprint of its cause, and reports show it under the cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from gpudoctor.config import suggestion
from gpudoctor.diagnosis import SEVERITIES, Finding
from gpudoctor.engine.rule import Cause, Rule
from gpudoctor.errors import RuleError

if TYPE_CHECKING:
    import networkx as nx


def check_causes(rules: Iterable[Rule]) -> None:
    """Checks that rules name only rules that exist as their causes, and that no rule explains itself round a circle.

    Raises:
        RuleError: naming the file and the rule.
    """
    by_id = {rule.id: rule for rule in rules}
    for rule in by_id.values():
        for cause in rule.explained_by:
            if cause.rule not in by_id:
                hint = suggestion(cause.rule, by_id)
                raise RuleError(f"{rule.path}: `explained_by` names {cause.rule!r}, which is no rule{hint}")
    try:
        TopologicalSorter({rule.id: {cause.rule for cause in rule.explained_by} for rule in by_id.values()}).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        path = by_id[circle[0]].path
        raise RuleError(f"{path}: `explained_by` goes round in a circle, {' → '.join(circle)}; drop one") from None


def cause_graph(findings: Sequence[Finding], rules: Mapping[str, Rule]) -> nx.DiGraph:
    """The findings by fingerprint, with an edge from each to every finding that may explain it.

    Args:
        findings: with their fingerprints.
        rules: by id; what they say in `explained_by` makes the edges.

    Returns:
        A graph without circles; edges carry `because`.
    """
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(finding.fingerprint for finding in findings)
    for finding in findings:
        for cause in rules[finding.rule].explained_by:
            for other in findings:
                if other.rule == cause.rule and other.accepted is None and _explains(other, finding, cause):
                    graph.add_edge(finding.fingerprint, other.fingerprint, because=cause.because)
    return graph


USELESS = "replayed without that one, this costs nothing more"
"""Why a finding is another's whose fix leaves nothing to save."""


def nested(
    findings: Sequence[Finding], rules: Mapping[str, Rule], useless: Mapping[str, str] | None = None
) -> list[Finding]:
    """The findings in their order, each with its cause and with those that it explains.

    Of several possible causes the one with the largest saving is taken, then the graver one, then the first.

    Args:
        findings: with their fingerprints.
        rules: by id; what they say in `explained_by`.
        useless: fingerprint → fingerprint of the finding whose fix leaves nothing to save, as a replay says. It counts
            where no rule names a cause.
    """
    found = {finding.rule for finding in findings}
    if not useless and not any(cause.rule in found for name in found for cause in rules[name].explained_by):
        return list(findings)
    graph = cause_graph(findings, rules)
    for mark, cause in (useless or {}).items():
        if not graph.out_degree(mark) and not _leads_to(graph, cause, mark):
            graph.add_edge(mark, cause, because=USELESS)
    by_mark = {finding.fingerprint: finding for finding in findings}
    order = {finding.fingerprint: place for place, finding in enumerate(findings)}
    chosen: dict[str, str] = {}
    for mark, finding in by_mark.items():
        if finding.accepted is None and (causes := list(graph.successors(mark))):
            chosen[mark] = min(causes, key=lambda cause: (*_weight(by_mark[cause]), order[cause]))
    explained: dict[str, list[str]] = {}
    for mark, cause in chosen.items():
        explained.setdefault(cause, []).append(mark)
    return [
        replace(
            finding,
            explained_by=chosen.get(finding.fingerprint),
            because=graph.edges[finding.fingerprint, chosen[finding.fingerprint]]["because"]
            if finding.fingerprint in chosen
            else None,
            children=tuple(explained.get(finding.fingerprint, ())),
        )
        for finding in findings
    ]


def _leads_to(graph: nx.DiGraph, start: str, end: str) -> bool:
    import networkx as nx

    return bool(nx.has_path(graph, start, end))


def _weight(finding: Finding) -> tuple[int, int]:
    return (-(finding.saving.ns_per_step if finding.saving else -1), SEVERITIES.index(finding.severity))


def _explains(cause: Finding, finding: Finding, how: Cause) -> bool:
    """Whether two findings lie as the rule says; over a whole run the cause must also be worth as much."""
    if how.share == "rule":
        return True
    if how.share == "place":
        return bool(_places(cause) & _places(finding))
    if how.share == "function":
        return bool(_functions(cause) & _functions(finding))
    if cause.saving is None or finding.saving is None:
        return SEVERITIES.index(cause.severity) <= SEVERITIES.index(finding.severity)
    return cause.saving.ns_per_step >= finding.saving.ns_per_step


def _places(finding: Finding) -> set[tuple[str, int]]:
    return {(where.file, where.line) for where in (finding.where, *finding.locations) if where}


def _functions(finding: Finding) -> set[tuple[str, str | None]]:
    """The function that a finding points at; module level is one as well."""
    return {(finding.where.file, finding.where.function)} if finding.where else set()
