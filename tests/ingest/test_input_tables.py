from __future__ import annotations

from gpudoctor.ingest.input_tables import one_a_place


def test_a_loader_that_is_built_again_is_the_same_loader() -> None:
    made = {"file": "t.py", "line": 5, "batch_size": 8}
    loaders = [made | {"loader": 0}, made | {"loader": 1}, made | {"loader": 2, "batch_size": 9}]
    batches = [{"loader": number} for number in (0, 1, 2, 1)]
    assert [loader["loader"] for loader in one_a_place(loaders, batches)] == [0, 2]
    assert [batch["loader"] for batch in batches] == [0, 0, 2, 0]


def test_loaders_whose_place_is_not_known_stay_apart() -> None:
    loaders = [{"file": None, "loader": 0}, {"file": None, "loader": 1}]
    assert len(one_a_place(loaders, [])) == 2
