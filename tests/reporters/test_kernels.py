"""Generated kernels on the page: the user's lines beside folded code, and what was cut."""

from __future__ import annotations

import re
from dataclasses import replace

from gpudoctor.diagnosis import without_source
from gpudoctor.reporters import html

from . import diagnoses
from .test_html import words


def test_a_kernel_stands_beside_its_lines_and_its_code_is_folded() -> None:
    page = html.render(diagnoses.compiled())
    text = words(page)
    assert "triton_poi_fused_relu_0 triton forward · fuses relu · moves 1.00 MiB · 41.0 µs a step" in text
    assert "train.py:16 h = F.relu(self.fc1(x)) Generated code, 5 lines @triton.jit def triton_poi_fused_relu_0" in text
    assert "train.py:19 return self.head(h)" in text
    assert len(re.findall(r'<details class="numbers">\s*<summary>Generated code', page)) == 2


def test_what_was_cut_of_the_code_and_of_the_kernels_is_said() -> None:
    text = words(html.render(diagnoses.compiled()))
    assert "85 more lines left out, to keep the page small." in text
    assert "It is not known which lines it comes from. 33 lines of its code left out" in text
    assert "4 more kernels: see the table generated_kernels" in text
    base = diagnoses.compiled()
    assert "more kernel" not in words(html.render(replace(base, generated_left_out=0)))


def test_without_source_the_page_has_the_places_and_neither_code_nor_text() -> None:
    page = html.render(without_source(diagnoses.compiled()))
    assert "train.py:16" in page and "triton_poi_fused_relu_0" in page
    assert "@triton.jit" not in page and "self.fc1(x))" not in words(page)
