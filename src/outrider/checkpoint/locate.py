"""From what a user types (a folder or a hub id) to files on this machine."""

from __future__ import annotations

import re
from pathlib import Path

from outrider.checkpoint.errors import CheckpointError

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
PATTERNS = ["*.json", "*.safetensors"]  # never pickles


def locate(path_or_id: str | Path) -> Path:
    """The folder of a checkpoint: a local one, or the hub's snapshot, downloaded when it is not in the cache.

    Without a network, or with HF_HUB_OFFLINE=1, a cached snapshot is used. Raises CheckpointError.
    """
    local = _local(path_or_id)
    if local is None:
        return _snapshot(str(path_or_id), local_only=False)
    if local.is_file():
        raise CheckpointError(path_or_id, "is a file; give the folder that holds the checkpoint")
    return local


def locate_config(path_or_id: str | Path) -> tuple[Path, bool]:
    """(config.json, whether weights lie beside it), without downloading any weights.

    Accepts a folder, a path to a config.json, or a hub id, of which only config.json is fetched when no snapshot with
    weights is cached. Raises CheckpointError.
    """
    local = _local(path_or_id)
    if local is not None and local.is_file():
        return local, False
    if local is None:
        try:
            local = _snapshot(str(path_or_id), local_only=True)
        except CheckpointError:
            return _hub_config(str(path_or_id)), False
    weights = any(local.glob("*.safetensors")) or (local / "model.safetensors.index.json").exists()
    return local / "config.json", weights


def _local(path_or_id: str | Path) -> Path | None:
    """An existing local path; None for what can only be a hub id."""
    path = Path(path_or_id).expanduser()
    if path_or_id != "" and path.exists():
        return path
    if isinstance(path_or_id, str) and HUB_ID.fullmatch(path_or_id):
        return None
    raise CheckpointError(path_or_id, "no such folder, and not a hub id of the form owner/name")


def _snapshot(repo: str, *, local_only: bool) -> Path:
    import huggingface_hub  # slow to import, and needed for hub ids only

    try:
        return Path(huggingface_hub.snapshot_download(repo, allow_patterns=PATTERNS, local_files_only=local_only))
    except Exception as error:  # the hub client and its network stack raise dozens of types
        raise _hub_error(repo, error) from None


def _hub_config(repo: str) -> Path:
    import huggingface_hub

    try:
        return Path(huggingface_hub.hf_hub_download(repo, "config.json"))
    except Exception as error:
        raise _hub_error(repo, error) from None


def _hub_error(repo: str, error: Exception) -> CheckpointError:
    from huggingface_hub import errors

    if isinstance(error, errors.IncompleteSnapshotError):
        reason = "the cached copy is incomplete and the hub cannot be reached"
    elif isinstance(error, errors.LocalEntryNotFoundError):
        reason = "no such local folder, not in the hub cache, and the hub cannot be reached"
    elif isinstance(error, errors.GatedRepoError):
        reason = "the hub wants you to accept this model's terms and log in first"
    elif isinstance(error, errors.RepositoryNotFoundError):
        reason = "no such local folder and no such model on the hub (or it is private and you are not logged in)"
    else:
        text = str(error).strip().splitlines()
        reason = f"the hub answered with {type(error).__name__}: {text[0] if text else 'no message'}"
    return CheckpointError(repo, reason, "Check the name and the connection, or give a local folder.")
