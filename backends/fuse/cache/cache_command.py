"""`framejit cache`: what the disk cache of compiled kernels and plans holds, and how to empty it."""
from __future__ import annotations

import argparse
import sys
from typing import Any

from framejit.backends.fuse.cache.cache_folder import Refused
from framejit.backends.fuse.cache.disk_cache import current

ACTIONS = {"info": "show where compiled kernels and plans are kept, how many and how large", "clear": "remove them all"}


def add_cache_command(commands: Any) -> None:
    """Add `cache info` and `cache clear` to the subcommands of a parser."""
    meaning = "the disk cache of compiled kernels and plans (FRAMEJIT_CACHE_DIR, FRAMEJIT_CACHE_SIZE)"
    command = commands.add_parser("cache", help=meaning, description=meaning)
    actions = command.add_subparsers(dest="action", required=True)
    for name, meaning in ACTIONS.items():
        actions.add_parser(name, help=meaning, description=meaning)


def run_cache_command(options: argparse.Namespace) -> None:
    """Carry out one of ACTIONS."""
    cache = current()
    try:
        if options.action == "info":
            print(cache.info())
        else:
            count, size = cache.clear()
            print(f"removed {count} files, {size} bytes, from {cache.folder}")
    except (OSError, Refused) as e:
        sys.exit(f"framejit: the folder {cache.folder} can't be used: {getattr(e, 'strerror', None) or e}")
