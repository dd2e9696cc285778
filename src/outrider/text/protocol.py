"""The tokens and fixed texts that DeepSeek-V4's prompts and answers are written in.

The texts are data, in `protocol.toml` beside this file, with their source and licence.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Literal

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
USER, ASSISTANT, REMINDER = "<｜User｜>", "<｜Assistant｜>", "<｜latest_reminder｜>"
THINK, THINK_END = "<think>", "</think>"
DSML = "｜DSML｜"
TASKS = {
    "action": "<｜action｜>",
    "query": "<｜query｜>",
    "authority": "<｜authority｜>",
    "domain": "<｜domain｜>",
    "title": "<｜title｜>",
    "read_url": "<｜read_url｜>",
}

_TEXTS: dict[str, str] = tomllib.loads((files("outrider.text") / "protocol.toml").read_text(encoding="utf-8"))
TOOLS_TEMPLATE = _TEXTS["tools"]
RESPONSE_FORMAT_TEMPLATE = _TEXTS["response_format"]
JSON_OBJECT = _TEXTS["json_object"]
ABSOLUTE_MAXIMUM = _TEXTS["effort_absolute_maximum"]
BEYOND_MAXIMUM = _TEXTS["effort_beyond_maximum"]

Generation = Literal["preview", "0731"]

# What is put before the system text in thinking mode. The April preview strengthened "max" alone; the release of 31
# July gave that text to "high", which is also what no effort means there, and "max" a stronger one. Levels in between
# go where DeepSeek's own encoder sends them.
EFFORT_PREFIXES: dict[Generation, dict[str | None, str]] = {
    "preview": {
        None: "",
        "minimal": "",
        "low": "",
        "medium": "",
        "high": "",
        "xhigh": ABSOLUTE_MAXIMUM,
        "max": ABSOLUTE_MAXIMUM,
    },
    "0731": {
        None: ABSOLUTE_MAXIMUM,
        "minimal": "",
        "low": "",
        "medium": ABSOLUTE_MAXIMUM,
        "high": ABSOLUTE_MAXIMUM,
        "xhigh": ABSOLUTE_MAXIMUM,
        "max": BEYOND_MAXIMUM,
    },
}
