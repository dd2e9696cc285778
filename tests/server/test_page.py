"""The chat page: it loads nothing from elsewhere, and in a browser shows which text had been drafted."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest
from tests.server.browser import chromium, tab
from tests.server.process import SPECULATION, process
from tests.server.serving import QUESTION, Api, serving


def test_its_policy_allows_its_own_script_and_nothing_else(api: Api) -> None:
    response = api.get("/")
    assert response.status_code == 200 and response.headers["content-type"].startswith("text/html")
    (script,) = re.findall(r"<script>(.*?)</script>", response.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'") and f"script-src 'sha256-{digest}'" in policy
    assert not re.search(r"https?://|src=|href=|innerHTML|eval\(", response.text)


def test_it_opens_without_a_key_and_answers_need_one() -> None:
    with serving(api_key="sesame") as api:
        assert api.get("/").status_code == 200
        assert api.get("/v1/models").status_code == 401


@pytest.mark.skipif(chromium() is None, reason="no Chromium here")
def test_a_conversation_in_a_browser(tmp_path: Path) -> None:
    program = chromium()
    assert program is not None
    with process("--speculative-config", SPECULATION) as (_, url), tab(program, tmp_path) as page:
        page.open(url.removesuffix("v1"))
        page.wait_for("document.getElementById('model').textContent.includes('API key')")
        page.evaluate("document.getElementById('key').value = 'sesame'")
        page.evaluate("document.getElementById('key').dispatchEvent(new Event('change'))")
        page.wait_for("document.getElementById('model').textContent === 'tiny'")

        def ask(text: str) -> str:
            page.evaluate(f"document.getElementById('text').value = {text!r}")
            page.evaluate("document.getElementById('form').requestSubmit()")
            page.wait_for("document.querySelector('.account') && !document.getElementById('send').disabled")
            answer: str = page.evaluate("[...document.querySelectorAll('.turn')].at(-1).textContent")
            return answer

        answer = ask(QUESTION)
        assert answer
        drafted = page.evaluate("[...document.querySelectorAll('.turn .drafted')].map((e) => e.textContent).join('')")
        assert 0 < len(drafted) < len(answer)
        assert "tokens a pass" in page.evaluate("document.querySelector('.account').textContent")
        assert page.evaluate("document.querySelector('.error')") is None

        page.evaluate("document.getElementById('again').click(), document.getElementById('plain').click()")
        assert page.evaluate("document.querySelectorAll('.turn').length") == 0
        assert ask(QUESTION) == answer
        assert page.evaluate("document.querySelectorAll('.turn .drafted').length") == 0
        assert "no drafts" in page.evaluate("document.querySelector('.account').textContent")
