"""Classes that captured code makes by collections.namedtuple.

The class that the capture works with is made while capturing, from names that are known, and stands for the one that
each call makes. Nothing of it is guarded. Replacement code makes the real one where something that leaves captured code
needs it (`Codegen.load_made`).
"""

from __future__ import annotations

import collections
import warnings
from typing import TYPE_CHECKING, Any

from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.folding import plain
from framejit.values.handlers import handles
from framejit.values.objects.classes import ClassValue

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame

_SETTINGS = ("rename", "defaults", "module")


class NamedTupleClassValue(ClassValue):
    """A class made here; `names` and `settings` are what namedtuple() was given."""

    built_once = True

    def __init__(self, cls: type, names: tuple[Any, ...], settings: dict[str, Any]) -> None:
        super().__init__(cls)
        self.names, self.settings = names, settings

    def reconstruct(self, cg: Codegen) -> None:
        recipe = (*self.names, *(self.settings[name] for name in _SETTINGS))
        cg.em.call_object(make_named_tuple, lambda: [cg.em.load_object(part) for part in recipe], len(recipe))


def make_named_tuple(typename: str, field_names: Any, rename: bool, defaults: Any, module: Any) -> type:
    return collections.namedtuple(typename, field_names, rename=rename, defaults=defaults, module=module)


@handles(collections.namedtuple)
def _named_tuple(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = dict(zip(("typename", "field_names"), args)) | kwargs
    settings = {name: plain(frame, given.pop(name)) if name in given else None for name in _SETTINGS}
    if set(given) != {"typename", "field_names"} or len(args) > 2:
        return _refused("namedtuple() with other arguments")
    typename, fields = (plain(frame, given[name]) for name in ("typename", "field_names"))
    fields = tuple(fields) if type(fields) is list else fields
    defaults = settings["defaults"] = (
        tuple(settings["defaults"]) if type(settings["defaults"]) is list else settings["defaults"]
    )
    texts = (typename, *(fields if type(fields) is tuple else (fields,)))
    known = (
        all(type(text) is str for text in texts)
        and type(settings["rename"]) in (bool, type(None))
        and type(settings["module"]) in (str, type(None))
    )
    if not known or type(defaults) not in (tuple, type(None)) or not all(type(v) in _PLAIN for v in defaults or ()):
        return _refused("namedtuple() of other things than text")
    settings["rename"] = bool(settings["rename"])
    settings["module"] = settings["module"] or frame.globals.get("__name__", "__main__")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            cls = make_named_tuple(typename, fields, bool(settings["rename"]), defaults, settings["module"])
    except Exception as e:
        raise frame.raised_from(e) from None
    made = NamedTupleClassValue(cls, (typename, fields), settings)
    frame.capture.made_classes[cls] = made
    return made


_PLAIN = (int, float, bool, str, bytes, type(None))


def _refused(what: str) -> Value:
    raise Unsupported(what, "FJ114")
