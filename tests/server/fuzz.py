"""schemathesis over the server's own OpenAPI schema: no request that it can think of may be answered with a 5xx.

    python -m venv FUZZ && FUZZ/bin/pip install schemathesis
    python -m tests.server.fuzz FUZZ/bin/python

4.32.5 when this was written. The context is short, so that no request takes long.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tests.server.process import SPECULATION, process

CHECKS = "not_a_server_error,content_type_conformance,response_schema_conformance,negative_data_rejection"
# else imported when first used, deep in a stack, where Python 3.11 fails ("AST constructor recursion depth mismatch")
START = "import anyio, schemathesis.transport.asgi; from schemathesis.cli import schemathesis; schemathesis()"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", type=Path, help="of the environment that has schemathesis")
    parser.add_argument("--max-examples", type=int, default=50, help="for each operation")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with process("--speculative-config", SPECULATION, "--max_model_len", "96") as (_, url):
        command = [str(options.python), "-c", START, "run", f"{url.removesuffix('/v1')}/openapi.json"]
        command += ["--checks", CHECKS]
        command += ["--phases", "examples,coverage,fuzzing", "--max-examples", str(options.max_examples)]
        command += ["--seed", str(options.seed), "--workers", "4", "--request-timeout", "60", "--continue-on-failure"]
        command += ["--header", "Authorization: Bearer sesame", "--no-color"]
        sys.exit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()
