"""A model card as HTML, as the Hub would show it: safe, with no request for its pictures."""

import re

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

_OWN = re.compile(r"&lt;(/?code|br)&gt;")
_FRONT = re.compile(r"---\n(.*?)\n---\n", re.DOTALL)


def preview(card: str) -> tuple[str, Markup]:
    """The front matter of a card, and its text as HTML; a picture is its caption, since the page shows it elsewhere.

    HTML in the text is shown, not followed, but for the `<code>` and `<br>` that our cards hold.
    """
    match = _FRONT.match(card)
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(card[match.end() :] if match else card)
    for token in tokens:
        _shown(token)
    html = reader.renderer.render(tokens, reader.options, {})
    return match[1] if match else "", Markup(_OWN.sub(r"<\1>", html))


def _shown(token: Token) -> None:
    """A heading two levels down, below those of the page; a picture as its words; a link with its place as a title."""
    if token.type in ("heading_open", "heading_close"):
        token.tag = f"h{min(int(token.tag[1]) + 2, 6)}"
    for child in token.children or []:
        if child.type == "link_open":
            child.attrs = {"title": child.attrs["href"]}
        if child.type == "image":
            child.type, child.content, child.children = "text", f"[figure: {child.content}]", None
