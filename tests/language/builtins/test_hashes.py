"""Hashes of bytes that are known are known; hashes that are given more data are made by the program."""
from __future__ import annotations

import hashlib
import json

import pytest
import torch

from support import ANY, Pair, check, check_state

X = torch.ones(3)
NAMES = "md5 sha1 sha224 sha256 sha384 sha512 sha3_224 sha3_256 sha3_384 sha3_512".split()


@pytest.mark.parametrize("name", NAMES)
def test_digests(name):
    function = getattr(hashlib, name)

    def fn(x):
        found = function(b"text"), function()
        return x + int(found[0].hexdigest()[:4], 16), [
            (one.hexdigest(), one.digest(), one.name, one.digest_size, one.block_size) for one in found
        ]

    check(fn, X)


def test_keys_of_a_cache():
    def make():
        cache = {}

        def fn(x, name, config):
            key = hashlib.md5(name.encode()).hexdigest() + hashlib.sha1(json.dumps(config).encode()).hexdigest()
            if key not in cache:
                cache[key] = x.sum()
            return x * cache[key]

        return fn, cache

    pair = check_state(make, (X, "a", {"k": 1}), (X, "b", {"k": 1}), (X + 1, "a", {"k": 1}), (X, "a", {"k": 2}))
    assert not pair.breaks


def test_a_hash_that_leaves_or_is_given_more():
    def make():
        kept = []

        def fn(x):
            one = hashlib.sha256(b"text")
            kept.append(one)
            kept.append(one)
            other = hashlib.md5(b"a")
            y = x * 2
            other.update(b"b")
            third = one.copy()
            third.update(b"c")
            return y + 1, other.hexdigest(), third.hexdigest()

        return fn, lambda: [(one.hexdigest(), one is kept[0]) for one in kept]

    pair = Pair(make)
    for _ in range(2):
        pair.call(X)
    pair.expect(breaks=ANY)


@pytest.mark.parametrize("data", ["text", 3, None, bytearray(b"text"), memoryview(b"text")])
def test_what_is_no_bytes(data):
    def fn(x):
        try:
            return x + 1, hashlib.sha256(data).hexdigest()
        except TypeError as e:
            return x, str(e)

    check(fn, X, graphs=None, breaks=None)
