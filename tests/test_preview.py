"""The card in the report: HTML as the Hub would show it, with nothing that runs or asks."""

from pathlib import Path

from provenzoo.report.card import cell, code
from provenzoo.report.preview import preview

CARD = f"""---
license: mit
---

# Name

{cell("a <script>alert(1)</script> | b")} and {code("x | y")}.

| a | b |
|---|---|
| 1<br>2 | <img src=x onerror=y> |

![picture](https://example.org/x.png)

[arXiv](https://arxiv.org/abs/1)
"""


def test_a_card_is_shown_as_html() -> None:
    front, html = preview(CARD)
    assert (
        front == "license: mit"
        and "<h3>Name</h3>" in html
        and "<td>1<br>2</td>" in html
        and "<code>x | y</code>" in html
    )


def test_nothing_in_a_card_runs_or_asks() -> None:
    _, html = preview(CARD)
    assert "<script" not in html and "<img" not in html and "[figure: picture]" in html
    assert '<a title="https://arxiv.org/abs/1">' in html and "href" not in html


def test_a_link_that_would_run_is_no_link() -> None:
    assert "href" not in preview("[x](javascript:alert(1))")[1]


def test_the_verdicts_of_a_card_need_no_font_with_emoji(reference: Path) -> None:
    page = (reference / "report.html").read_text()
    draft = page[page.index("Draft of the model card") :]
    assert (reference / "README.md").read_text().count("✅ holds") == 2
    assert not {"✅", "❌"} & set(page) and draft.count('<td><span class="verdict good"><svg') == 2
