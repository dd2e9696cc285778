"""The chat page at `/`: one file, which loads nothing from anywhere and talks to this server alone."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files

from starlette.responses import HTMLResponse


@cache
def _page() -> tuple[str, str]:
    """The page, and the policy that lets its own script and style run and no others."""
    page = (files("outrider.server") / "page.html").read_text(encoding="utf-8")
    hashes = {}
    for kind in ("script", "style"):
        (text,) = re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        hashes[kind] = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; connect-src 'self'; script-src 'sha256-{hashes['script']}'; "
        f"style-src 'sha256-{hashes['style']}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page, policy


def chat_page() -> HTMLResponse:
    page, policy = _page()
    return HTMLResponse(page, headers={"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"})
