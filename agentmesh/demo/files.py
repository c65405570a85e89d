"""The file that crosses the mesh."""

import hashlib
import os
from pathlib import Path

import trio

PIECE_BYTES = 8 * 1024 * 1024


async def write_random(path: Path, size: int) -> None:
    """Write a file of random bytes. Cancellation: safe between pieces of PIECE_BYTES."""
    with path.open("wb") as file:
        for start in range(0, size, PIECE_BYTES):
            piece = os.urandom(min(PIECE_BYTES, size - start))
            await trio.to_thread.run_sync(file.write, piece)


async def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    return await trio.to_thread.run_sync(_sha256, path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
