"""Tile choices: one that decides bits is one for an architecture and a kind of cache."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.platforms.architectures import ARCHITECTURES
from outrider.platforms.tiles import INTERPRETER_TILES, attention_tiles


@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_split_is_whole_key_tiles(name: str, fp8: bool) -> None:
    tiles = attention_tiles(ARCHITECTURES[name], fp8=fp8)
    assert tiles.split_keys % tiles.key_tile == 0 and tiles.key_tile & (tiles.key_tile - 1) == 0


def test_a_split_that_cuts_a_key_tile_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        replace(INTERPRETER_TILES, split_keys=INTERPRETER_TILES.key_tile + 1)
