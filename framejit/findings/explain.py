"""`explain`: one call, and all that the compiler decided in it."""
from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ParamSpec

from framejit.api import optimize
from framejit.dispatchers import drop_entries
from framejit.findings.explanation import Explanation

P = ParamSpec("P")


def explain(fn: Callable[P, Any], /, **options: Any) -> Callable[P, Explanation]:
    """Call `explain(fn)(*args)` as you would `fn(*args)`: it runs, is compiled anew, and what the compiler did is
    returned.

    `options` are those of `optimize`. All compiled code is dropped before, so that nothing stays unsaid because it was
    compiled earlier, and after, because code that is being explained measures itself.

    What the call returns is `Explanation.result`, an exception that it raises `Explanation.error`. `explain` itself
    raises what `optimize` raises for targets and options.
    """
    optimized = optimize(fn, **options)

    def call(*args: P.args, **kwargs: P.kwargs) -> Explanation:
        explanation = Explanation()
        drop_entries()
        listening = explanation.listen(threading.get_ident())
        try:
            explanation.result = optimized(*args, **kwargs)
        except Exception as e:
            explanation.error = e
        finally:
            listening.stop()
            drop_entries()
        explanation.find_rewrites()
        return explanation

    return call
