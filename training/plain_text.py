"""Turn reStructuredText, HTML and Markdown documentation into plain text: prose kept, markup and tables dropped."""

import re
from html.parser import HTMLParser

_BLANKS = re.compile(r"[ \t]+")
_MANY_LINES = re.compile(r"\n{3,}")


def tidy(text: str) -> str:
    """Strip blanks at line ends and squeeze runs of empty lines; one line end at the end."""
    lines = [line.rstrip() for line in text.replace("\u200b", "").replace("\t", "    ").split("\n")]
    return _MANY_LINES.sub("\n\n", "\n".join(lines)).strip() + "\n"


# --- reStructuredText ---------------------------------------------------------------------------------

_ROLE_WITH_TARGET = re.compile(r":[\w:+.-]+:`([^`<]+?)\s*<[^`>]+>`", re.S)
_ROLE = re.compile(r":[\w:+.-]+:`[!~]?([^`]+)`")
_LINK = re.compile(r"`([^`<]+?)\s*<[^`>]+>`_{1,2}", re.S)
_LITERAL = re.compile(r"``([^`]+)``")
_INTERPRETED = re.compile(r"`([^`\n]+)`_{0,2}")
_EMPHASIS = re.compile(r"(?<![\w*])\*{1,2}([^\s*][^*\n]*?)\*{1,2}(?![\w*])")
_UNDERLINE = re.compile(r"([=\-~^\"'*#+.`])\1{2,}\s*")
_DIRECTIVE = re.compile(r"\.\. ([\w:.+-]+)::\s*(.*)")
_OPTION = re.compile(r":[\w-]+:")
_GRID = re.compile(r"[+|].*[+|]\s*|=+( +=+)+\s*")
_CODE = {"code-block", "sourcecode", "code", "doctest", "testcode", "highlight-block", "parsed-literal"}
_ASIDES = {"note": "Note: ", "important": "Note: ", "warning": "Warning: ", "tip": "Tip: ", "seealso": "See also: "}
# Directives that describe a thing: the argument is its signature, the content its description.
_OBJECTS = re.compile(
    r"(?:\w+:)?(?:function|method|class|classmethod|staticmethod|attribute|data|exception|decorator"
    r"|decoratormethod|opcode|describe|member|macro|type|var)$"
)


def from_rst(text: str) -> str:
    """Plain text of one reStructuredText document; descriptions are moved to the margin, code keeps its indent."""
    lines: list[str] = []
    code_indent = -1  # indent of the line that opened a literal block; -1 outside
    skip_indent = -1  # indent of a directive whose content is dropped; -1 outside
    for raw in text.expandtabs().split("\n"):
        stripped = raw.strip()
        indent = len(raw) - len(raw.lstrip())
        if not stripped:
            lines.append("")
            continue
        if skip_indent >= 0:
            if indent > skip_indent:
                continue
            skip_indent = -1
        if code_indent >= 0:
            if indent > code_indent:
                if not (_OPTION.match(stripped) and not lines[-1]):
                    lines.append(raw[code_indent:])
                continue
            code_indent = -1
        directive = _DIRECTIVE.match(stripped)
        if directive:
            name, argument = directive.groups()
            if name in _CODE:
                code_indent = indent
            elif name in _ASIDES:
                lines.append(_ASIDES[name] + _inline(argument))
            elif _OBJECTS.match(name):
                lines.append(argument)
            else:
                skip_indent = indent
        elif stripped.startswith(".. "):
            skip_indent = indent  # comments, targets, footnotes
        elif _UNDERLINE.fullmatch(stripped) or _GRID.fullmatch(stripped) or _OPTION.match(stripped):
            continue
        elif stripped.startswith((">>>", "...")):
            lines.append(stripped)
        else:
            if stripped.endswith("::"):
                code_indent = indent
                stripped = stripped[:-1] if len(stripped) > 2 else ""
            lines.append(stripped)
    return tidy(_inline("\n".join(lines)))


def _inline(text: str) -> str:
    for pattern in (_ROLE_WITH_TARGET, _ROLE, _LINK, _LITERAL, _INTERPRETED, _EMPHASIS):
        text = pattern.sub(r"\1", text)
    return text.replace("|version|", "3").replace("\\ ", "").replace("\\*", "*")


# --- HTML ---------------------------------------------------------------------------------------------

_DROPPED = {"script", "style", "head", "nav", "header", "footer", "table", "button", "svg", "sup", "form", "select"}
_DROPPED_CLASSES = {"navheader", "navfooter", "toc", "indexterm", "nav-wrapper", "sidebar", "buttons", "boring"}
_BLOCKS = {"p", "div", "section", "ul", "ol", "dl", "dt", "dd", "blockquote", "h1", "h2", "h3", "h4", "h5", "h6"}
_VOID = {"br", "hr", "img", "meta", "link", "input", "col", "wbr", "area", "base", "embed", "source", "track"}


class _Extractor(HTMLParser):
    """Collects text; `within` names the tag whose content counts (`main` in mdBook pages)."""

    def __init__(self, within: str) -> None:
        super().__init__(convert_charrefs=True)
        self.within, self.inside, self.dropped = within, 0, 0
        self.preformatted = 0
        self.open: list[tuple[str, bool]] = []  # (tag, whether it started a dropped part)
        self.parts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _VOID:
            if tag == "br":
                self.parts.append("\n")
            return
        classes = set((dict(attrs).get("class") or "").split())
        drops = tag in _DROPPED or not classes.isdisjoint(_DROPPED_CLASSES)
        self.open.append((tag, drops))
        self.dropped += drops
        self.inside += tag == self.within
        self.preformatted += tag == "pre"
        if self._kept():
            if tag in _BLOCKS or tag == "pre":
                self.parts.append("\n\n")
            elif tag == "li":
                self.parts.append("\n- ")

    def handle_endtag(self, tag: str) -> None:
        if all(tag != name for name, _ in self.open):
            return
        if self._kept() and (tag in _BLOCKS or tag == "pre"):
            self.parts.append("\n\n")
        while self.open:
            name, drops = self.open.pop()
            self.dropped -= drops
            self.inside -= name == self.within
            self.preformatted -= name == "pre"
            if name == tag:
                return

    def handle_data(self, data: str) -> None:
        if self._kept():
            self.parts.append(data if self.preformatted else re.sub(r"\s+", " ", data))

    def _kept(self) -> bool:
        return bool(self.inside) and not self.dropped


def from_html(text: str, within: str = "body") -> str:
    """Plain text of the element `within` of one HTML page, without tables and navigation."""
    extractor = _Extractor(within)
    extractor.feed(text)
    extractor.close()
    joined = re.sub(r"\n[ \t]+(?=[A-Z\"“(])", "\n", "".join(extractor.parts))
    return tidy(re.sub(r"\n- \s+", "\n- ", joined))


# --- Markdown -----------------------------------------------------------------------------------------

_COMMENT = re.compile(r"<!--.*?-->", re.S)
_MD_LINK = re.compile(r"\[([^\]]+)\](?:\[[^\]]*\]|\([^)\s]*\))")
_MD_TARGET = re.compile(r"^\[[^\]]+\]:.*$", re.M)
_MD_ROW = re.compile(r"^\|.*\|\s*$", re.M)
_MD_FENCE = re.compile(r"^```.*$", re.M)
_MD_HEADING = re.compile(r"^#+ ", re.M)


def from_markdown(text: str) -> str:
    """Plain text of one Markdown document, without comments, link targets, tables and fences."""
    text = _COMMENT.sub("", text)
    for pattern in (_MD_TARGET, _MD_ROW, _MD_FENCE, _MD_HEADING):
        text = pattern.sub("", text)
    return tidy(_MD_LINK.sub(r"\1", text).replace("`", ""))
