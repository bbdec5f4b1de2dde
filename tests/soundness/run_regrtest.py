"""`python -m test` in a process that has imported torch: regrtest sets `__file__` of all modules, which torch's config modules refuse."""
import runpy
import types

from torch.utils._config_module import ConfigModule

_refusing = ConfigModule.__setattr__


def _set(self, name, value):
    (types.ModuleType.__setattr__ if name == "__file__" else _refusing)(self, name, value)


ConfigModule.__setattr__ = _set
runpy.run_module("test", run_name="__main__", alter_sys=True)
