"""Plain data and named byte strings in one byte string: what the disk cache holds of a kernel.

A JSON header, its length in front, then the byte strings one after the other. Reading it can't run anything, whatever
it holds.
"""
from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, Final

_LENGTH: Final = struct.Struct("<I")


class BadRecord(ValueError):
    """The bytes are no record."""


def pack(fields: Mapping[str, Any], blobs: Mapping[str, bytes]) -> bytes:
    """A record of `fields` (what JSON can hold; tuples come back as lists) and `blobs`."""
    header = json.dumps({"fields": dict(fields), "blobs": [[name, len(blob)] for name, blob in blobs.items()]}).encode()
    return b"".join((_LENGTH.pack(len(header)), header, *blobs.values()))


def unpack(record: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The fields and blobs of a record. Raises BadRecord."""
    if len(record) < _LENGTH.size:
        raise BadRecord("too short for a record")
    at = _LENGTH.size + _LENGTH.unpack_from(record)[0]
    try:
        header = json.loads(record[_LENGTH.size : at])
        fields, sizes = dict(header["fields"]), [(str(name), int(size)) for name, size in header["blobs"]]
    except (ValueError, TypeError, KeyError) as e:
        raise BadRecord(f"no header of a record: {e}") from None
    blobs: dict[str, bytes] = {}
    for name, size in sizes:
        blobs[name] = record[at : at + max(size, 0)]
        at += size
    if at != len(record) or any(size < 0 for _, size in sizes):
        raise BadRecord(f"{len(record)} bytes where the header speaks of {at}")
    return fields, blobs
