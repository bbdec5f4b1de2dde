"""How an entry of the disk cache is sealed, so that nothing but what was put there under its name is ever taken out.

An entry is a header (magic, version of this format, length of the payload, SHA-256 over kind, key and payload) and the
payload. A file that was torn by a crash, has rotted, was renamed, or comes from another version fails one of these and
counts as missing.
"""
from __future__ import annotations

import hashlib
import struct
from typing import Final

MAGIC: Final = b"framejit"
VERSION: Final = 1
_HEADER: Final = struct.Struct("<8sIQ32s")


def seal(kind: str, key: str, payload: bytes) -> bytes:
    """The bytes of the file."""
    return _HEADER.pack(MAGIC, VERSION, len(payload), _digest(kind, key, payload)) + payload


def unseal(kind: str, key: str, sealed: bytes) -> bytes | None:
    """The payload; None if it is not what was sealed under this kind and key."""
    if len(sealed) < _HEADER.size:
        return None
    magic, version, length, digest = _HEADER.unpack_from(sealed)
    payload = sealed[_HEADER.size :]
    if (magic, version, length) != (MAGIC, VERSION, len(payload)) or digest != _digest(kind, key, payload):
        return None
    return payload


def _digest(kind: str, key: str, payload: bytes) -> bytes:
    hashed = hashlib.sha256(f"{VERSION} {kind} {key} ".encode())  # neither kind nor key holds a space
    hashed.update(payload)
    return hashed.digest()
