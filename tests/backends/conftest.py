"""Tests of torch's compiler for C++ run in processes of their own: where its code ends the process, as that of torch
2.13 does on some machines with AVX-512, the other tests go on."""
from __future__ import annotations

import functools
import os
import subprocess

import pytest
import torch

import framejit

import forked

BELOW = "FRAMEJIT_TEST_INDUCTOR_BELOW"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    case = getattr(pyfuncitem, "callspec", None)
    if BELOW in os.environ or case is None or "inductor" not in case.params.values():
        return None
    file, _, name = pyfuncitem.nodeid.partition("::")
    if name in _passed(file):
        return True
    done = _in_a_process("framejit", pyfuncitem.nodeid)
    if done.returncode < 0 and _in_a_process("torch.compile", pyfuncitem.nodeid).returncode < 0:
        pytest.skip(f"the code ends the process below torch.compile, too: by signal {-done.returncode}")
    assert done.returncode == 0, f"ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return True


@functools.cache
def _passed(file: str) -> frozenset[str]:
    """Which tests pass that run one after the other, up to one that ends the process."""
    lines = _in_a_process("framejit", file, "-k", "inductor", "-v").stdout.splitlines()
    return frozenset(
        line.partition("::")[2].partition(" PASSED")[0] for line in lines if line.startswith(file) and " PASSED" in line
    )


def _in_a_process(compiler: str, *tests: str) -> subprocess.CompletedProcess[str]:
    return forked.run(
        ["-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *tests], env={**os.environ, BELOW: compiler},
        timeout=500, having=("pytest",),
    )


@pytest.fixture(autouse=True)
def below(monkeypatch):
    if os.environ.get(BELOW) == "torch.compile":
        monkeypatch.setattr(framejit, "optimize", _below_torch)


def _below_torch(f, *, backend, dynamic=None, **options):
    return torch.compile(f, backend=backend, dynamic=dynamic)
