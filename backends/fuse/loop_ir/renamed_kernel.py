"""A kernel once more, for other buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from framejit.backends.fuse.loop_ir.expr import Expr, load
from framejit.backends.fuse.loop_ir.index import Index, Var
from framejit.backends.fuse.loop_ir.nodes import Buffer, Kernel, Store, TileKernel


class RenamedKernel(Kernel):
    """What another kernel does, done to other buffers. Its own stores are made for those who ask for them: most of what
    is to be known of it is known of the other one."""

    def __init__(self, like: Kernel, buffers: Mapping[str, Buffer], name: str) -> None:
        """`buffers`: by the names that the other has for its buffers those of this one."""
        self.like = like
        self.names = {own: buffer.name for own, buffer in buffers.items()}
        """By the other's names of buffers this one's."""
        steady = None if like.steady is None else frozenset(self.names[each] for each in like.steady)
        members = tuple(
            RenamedKernel(member, {own: buffers[own] for own in member.buffers}, member.name)
            for member in like.members
        )
        super().__init__(
            like.parallel, like.reduction, [], like.device, like.origins, name,
            {buffer.name: buffer for buffer in buffers.values()}, members, steady,
        )
        self._stores: list[Store] | None = None

    @property
    def stores(self) -> list[Store]:
        if self._stores is None:
            self._stores = [renamed(store, self.names) for store in self.like.stores]
        return self._stores

    @stores.setter
    def stores(self, stores: list[Store]) -> None:
        """The constructor has none to give."""

    def plain(self) -> Kernel:
        """The same as any other kernel is."""
        if isinstance(self.like, TileKernel):
            epilogue = self.like.epilogue
            result = self.like.tile.result.name
            names = self.names if result in self.names else {**self.names, result: result}
            return replace(
                self.like, name=self.name, buffers=self.buffers,
                epilogue=None if epilogue is None else renamed(epilogue, names),
            )
        members = tuple(member.plain() for member in self.members if isinstance(member, RenamedKernel))
        return Kernel(
            self.parallel, self.reduction, self.stores, self.device, self.origins, self.name, self.buffers, members,
            self.steady,
        )

    @property
    def reads(self) -> dict[str, list[Index]]:
        return {self.names[name]: indices for name, indices in self.like.reads.items()}

    @property
    def writes(self) -> list[str]:
        return [self.names[name] for name in self.like.writes]

    @property
    def places(self) -> list[tuple[str, Index]]:
        return [(self.names[name], index) for name, index in self.like.places]

    @property
    def is_empty(self) -> bool:
        return self.like.is_empty


def renamed(store: Store, names: Mapping[str, str]) -> Store:
    """A store with other names of buffers."""

    def other(loaded: Expr) -> Expr:
        name, index = loaded.attr
        return load(names[name], index, loaded.dtype)

    unmoved: dict[Var, Index] = {}
    lookups = {atom.value: atom.value.substitute(unmoved, other) for atom in store.index.indirects}
    index = store.index.substitute(unmoved, lookups) if lookups else store.index
    return replace(store, buffer=names[store.buffer], index=index, value=store.value.substitute(unmoved, other))
