from __future__ import annotations

import pytest

from gpudoctor.analysis import dtype_sites


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("net = nn.Linear(1, 2).double()", "explicit"),
        ("x = torch.zeros(3, dtype=torch.float64)", "explicit"),
        ("x = x.to(torch.double)", "explicit"),
        ("torch.set_default_dtype(torch.float64)", "explicit"),
        ('a = a.astype("float64")', "explicit"),
        ("x = torch.from_numpy(a)", "possible"),
        ("x = torch.tensor(a)", "possible"),
        ("x = torch.tensor([1.0, 2.0])", None),
        ("x = torch.as_tensor(a, dtype=torch.float32)", None),
        ("x = x.to(device)", None),
        ("x = double(3)", None),
        ("x = torch.from_numpy(a).double()", "explicit"),
        ("x = torch.from_numpy(a).float()", None),
        ("x = torch.as_tensor(a).to(torch.float32)", None),
        ("x = torch.as_tensor(a).to(device)", "possible"),
        ("x = f(torch.from_numpy(a)).float()", "possible"),
        ("s = '.double()'", None),
    ],
)
def test_sites(code: str, kind: str | None) -> None:
    found = dtype_sites.rows({"t.py": code})
    assert [row["kind"] for row in found] == ([kind] if kind else [])


def test_the_line_is_that_of_the_conversion_in_a_long_chain() -> None:
    code = "def f():\n    net = nn.Sequential(\n        nn.Linear(1, 2),\n    ).double()\n"
    (row,) = dtype_sites.rows({"t.py": code})
    assert (row["line"], row["function"]) == (4, "f")


def test_a_file_that_does_not_parse_has_no_sites() -> None:
    assert dtype_sites.rows({"t.py": "def ("}) == []


def test_a_name_given_to_float64_stands_for_it() -> None:
    code = "DTYPE = torch.float64\nx = torch.zeros(3, dtype=DTYPE)\ny = x.to(DTYPE)\nz = x.to(OTHER)\n"
    assert [(row["line"], row["kind"]) for row in dtype_sites.rows({"t.py": code})] == [
        (1, "explicit"),
        (2, "explicit"),
        (3, "explicit"),
    ]


def test_a_name_that_is_given_something_else_as_well_does_not() -> None:
    code = "dtype = torch.float64\nif fast:\n    dtype = torch.float32\nx = torch.zeros(3, dtype=dtype)\n"
    assert dtype_sites.rows({"t.py": code}) == []
