"""The text sources of the small model: how to fetch each package and read its documents as plain text."""

import gzip
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

from training.plain_text import from_html, from_markdown, from_rst, tidy


@dataclass(frozen=True)
class Source:
    """A package of text. `read` yields the documents below the unpacked packages, best prose first."""

    name: str
    licence: str
    apt: tuple[str, ...]  # Debian package names, or
    pip: str  # a Python package with its version; empty if apt is given
    tokens: int  # at most this many in training, so that no source crowds out the others
    prose: bool
    read: Callable[[Path], Iterator[str]]


def fetch(source: Source, downloads: Path, unpacked: Path) -> str:
    """Download and unpack a source with the ordinary clients; returns `package version` of what came."""
    downloads.mkdir(parents=True, exist_ok=True)
    target = unpacked / source.name
    target.mkdir(parents=True, exist_ok=True)
    versions = []
    for package in source.apt:
        if not list(downloads.glob(f"{package}_*.deb")):
            subprocess.run(["apt-get", "download", package], cwd=downloads, check=True)
        archive = next(downloads.glob(f"{package}_*.deb"))
        subprocess.run(["dpkg-deb", "-x", str(archive), str(target)], check=True)
        versions.append(f"{package} {archive.name.split('_')[1].replace('%3a', ':')}")
    if source.pip:
        package, _, version = source.pip.partition("==")
        if not list(downloads.glob(f"{package}-{version}-*.whl")):
            options = ["--no-deps", "--only-binary", ":all:", "--quiet", "-d", str(downloads)]
            subprocess.run([sys.executable, "-m", "pip", "download", *options, source.pip], check=True)
        with ZipFile(next(downloads.glob(f"{package}-{version}-*.whl"))) as wheel:
            wheel.extractall(target, [name for name in wheel.namelist() if name.endswith(".py")])
        versions.append(f"{package} {version}")
    return ", ".join(versions)


def _read_text(path: Path) -> str:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return data.decode("utf-8", errors="ignore")


# --- readers ------------------------------------------------------------------------------------------

_PYTHON_DOCS = (
    "tutorial",
    "howto",
    "faq",
    "library",
    "reference",
    "using",
    "extending",
    "whatsnew",
    "c-api",
    "distutils",
)


def _python_docs(root: Path) -> Iterator[str]:
    sources = next(root.rglob("_sources"))
    for folder in _PYTHON_DOCS:
        for path in sorted((sources / folder).rglob("*.rst.txt")):
            if path.name not in ("changelog.rst.txt", "index.rst.txt", "2.0.rst.txt"):
                yield from_rst(_read_text(path))


_NOT_PROSE_LIKE = ("/test/", "/tests/", "/benchmarks/", "/idle_test/", "/encodings/", "/_antlr/", "/pydoc_data/")


def _python_code(root: Path) -> Iterator[str]:
    for path in sorted(root.rglob("*.py")):
        where = "/" + path.relative_to(root).as_posix()
        if not any(part in where for part in _NOT_PROSE_LIKE) and path.is_file():
            text = tidy(_read_text(path))
            if _is_written_code(text):
                yield text


def _is_written_code(text: str) -> bool:
    """Whether a file is code that a person wrote, not a table of data: few digits, no endless lines."""
    lines = text.split("\n")
    digits = sum(map(str.isdigit, text))
    return len(text) > 400 and digits < 0.08 * len(text) and max(map(len, lines)) < 300


def _postgres_docs(root: Path) -> Iterator[str]:
    for path in sorted(root.rglob("html/*.html")):
        if not path.name.startswith(("release", "bookindex", "infoschema", "errcodes", "acknowledg", "index")):
            yield from_html(_read_text(path))


_RUST_BOOKS = ("book", "rust-by-example", "reference", "nomicon", "edition-guide", "embedded-book", "rustc", "rustdoc")


def _rust_docs(root: Path) -> Iterator[str]:
    html = next(root.rglob("rust-doc/html"))
    for book in _RUST_BOOKS:
        for path in sorted((html / book).rglob("*.html")):
            if path.name not in ("print.html", "toc.html", "404.html"):
                yield from_html(_read_text(path), within="main")


def _node_docs(root: Path) -> Iterator[str]:
    paths = [path for path in root.rglob("api/*.md*") if path.name.endswith((".md", ".md.gz"))]
    for path in sorted(paths):
        yield from_markdown(_read_text(path))


_WORD_CLASSES = {"n": "noun", "v": "verb", "a": "adjective", "s": "adjective", "r": "adverb"}
_GLOSSES_PER_DOCUMENT = 24


def _wordnet(root: Path) -> Iterator[str]:
    """Documents of neighbouring glosses, `word (noun): gloss`; every third group of each word class."""
    for name in ("data.noun", "data.verb", "data.adj", "data.adv"):
        entries = []
        for line in _read_text(next(root.rglob(name))).split("\n"):
            head, bar, gloss = line.partition(" | ")
            fields = head.split()
            if bar and len(fields) > 4 and fields[2] in _WORD_CLASSES:
                word = fields[4].split("(")[0].replace("_", " ")
                entries.append(f"{word} ({_WORD_CLASSES[fields[2]]}): {gloss.strip()}")
        for start in range(0, len(entries), 3 * _GLOSSES_PER_DOCUMENT):
            yield "\n".join(entries[start : start + _GLOSSES_PER_DOCUMENT]) + "\n"


SOURCES = (
    Source("pydocs", "PSF-2.0", ("python3.11-doc",), "", 3_300_000, True, _python_docs),
    Source("postgres", "PostgreSQL", ("postgresql-doc-15",), "", 1_700_000, True, _postgres_docs),
    Source("rust", "MIT or Apache-2.0", ("rust-doc",), "", 1_100_000, True, _rust_docs),
    Source("node", "MIT", ("nodejs-doc",), "", 900_000, True, _node_docs),
    Source("wordnet", "WordNet-3.0", ("wordnet-base",), "", 900_000, True, _wordnet),
    Source("stdlib", "PSF-2.0", ("libpython3.11-minimal", "libpython3.11-stdlib"), "", 2_600_000, False, _python_code),
    Source("sympy", "BSD-3-Clause", (), "sympy==1.13.3", 2_000_000, False, _python_code),
    Source("networkx", "BSD-3-Clause", (), "networkx==3.4.2", 900_000, False, _python_code),
    Source("numpy", "BSD-3-Clause", (), "numpy==2.2.6", 700_000, False, _python_code),
)
