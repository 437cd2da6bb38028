"""What the SQL of a rule may be made of, in DuckDB's own names. See `guard.py`."""

from __future__ import annotations

from gpudoctor.engine.macros import MACROS


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NODES = _words(
    """
    SELECT_NODE SET_OPERATION_NODE RECURSIVE_CTE_NODE CTE_NODE BASE_TABLE SUBQUERY JOIN
    EXPRESSION_LIST EMPTY TABLE_FUNCTION PIVOT ORDER_MODIFIER LIMIT_MODIFIER LIMIT_PERCENT_MODIFIER
    DISTINCT_MODIFIER ORDER_DEFAULT ASCENDING DESCENDING
    """
)
"""Query nodes, table references and modifiers of the syntax tree."""

EXPRESSIONS = _words(
    """
    BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT FUNCTION LAMBDA LAMBDA_REF
    OPERATOR PARAMETER POSITIONAL_REFERENCE STAR SUBQUERY TYPE WINDOW
    """
)
"""Classes of expressions of the syntax tree."""

LENGTHENING = _words(
    """
    || concat concat_ws replace regexp_replace list_concat list_cat array_concat list_append
    """
)
"""Functions that can make a value longer than its arguments each are."""

_AGGREGATES = _words(
    """
    any_value arg_max arg_min array_agg avg bit_and bit_or bool_and bool_or corr count count_if
    count_star countif covar_pop covar_samp entropy first fsum geomean grouping histogram kurtosis
    last list mad max max_by mean median min min_by mode product quantile quantile_cont
    quantile_disc regr_intercept regr_r2 regr_slope skewness stddev stddev_pop stddev_samp
    string_agg group_concat sum var_pop var_samp variance weighted_avg wavg
    """
)

_WINDOWS = _words(
    """
    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank
    rank_dense row_number
    """
)

_SCALARS = _words(
    """
    abs add ascii array_extract array_has array_length array_slice bit_count cardinality cbrt ceil
    ceiling char_length chr coalesce contains cos cosh degrees divide ends_with even exp floor
    flatten fdiv fmod gcd generate_subscripts greatest hex if ifnull instr isfinite isinf isnan
    json_array_length json_extract json_extract_string json_keys json_type json_valid json_value
    lcase lcm least left len length like_escape list_aggr list_aggregate list_apply list_any_value
    list_avg list_contains list_count list_distinct list_element list_extract list_filter list_first
    list_has list_has_all list_has_any list_indexof list_intersect list_last list_max list_median
    list_min list_pack list_position list_prepend list_product list_reduce list_reverse
    list_reverse_sort list_select list_slice list_sort list_string_agg list_sum list_transform
    list_unique list_value list_where list_zip ln log log10 log2 lower ltrim map map_contains
    map_entries map_extract map_from_entries map_keys map_values mod multiply nullif parse_filename
    pi position pow power prefix radians regexp_extract regexp_extract_all regexp_full_match
    regexp_matches regexp_split_to_array reverse right round round_even row rtrim sign signbit sin
    split split_part sqrt starts_with str_split string_split string_to_array strlen strpos
    struct_concat struct_extract struct_insert struct_keys struct_pack substr substring subtract
    suffix tan tanh to_json translate trim trunc try_cast typeof ucase unicode unnest upper xor
    array_to_string array_value
    """
)

FUNCTIONS = _AGGREGATES | _WINDOWS | _SCALARS | LENGTHENING | frozenset(MACROS)
"""Functions a rule may call: without side effects, the same on every run, and unable to allocate without limit."""

TABLE_FUNCTIONS = _words("unnest range generate_series json_each")
"""Functions allowed in FROM: they yield rows one batch at a time, so the time limit holds them."""
