"""`torch.__version__`, text that compares as versions do, is known while capturing."""

import re

import pytest
import torch
from torch.torch_version import TorchVersion

from support import check, check_state

X = torch.tensor([1.0, 2.0])


def test_of_this_torch():
    def fn(x):
        version = torch.__version__
        if version >= "1.5" and version > (1, 5):
            x = x + 1
        return x * 2, version, version is torch.__version__, version < "parrot", "1.13" > version, max(version, "3")

    check(fn, X)


@pytest.mark.parametrize("version", ["1.9.1", "1.13.0a0+git", "2.0.0+cu118"])
def test_of_others(version):
    version = TorchVersion(version)

    def fn(x):
        numbers = [int(number) for number in re.findall(r"\d+", version)]
        order = version < "1.10", "1.10" <= version, version == "1.13.0a0", version != "1.9.1", version > (1, 10)
        text = str(version), f"{version}", version + "!", version.split("+")[0], version[0], "1" in version
        return x + len(numbers), numbers, order, text, bool(version), isinstance(version, str), type(version)

    check(fn, X)


def test_what_a_match_was_looked_for_in():
    def fn(x):
        found = re.match(r"[\d.]+", torch.__version__)
        return x + 1, found.group(), found.string is torch.__version__

    check(fn, X)


def test_another_in_its_place():
    def make():
        place = {"version": TorchVersion("1.5")}

        def fn(x, other):
            result = x + 1 if place["version"] < "1.10" else x - 1
            place["version"] = other
            return result

        return fn, place

    later = TorchVersion("2.0"), TorchVersion("1.5"), "1.5", "9"
    check_state(make, *((X, other) for other in later), (X, "2"))


def test_what_can_not_be_compared():
    check(lambda x: (x + 1, torch.__version__ < 3), X, raises=TypeError)
