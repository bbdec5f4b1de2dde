"""What runs in the place of a plan with launch graphs: the plan itself at first, while it is watched where its inputs
lie, and then a launch plan."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from framejit import _native
from framejit.backends.fuse.launches.launch_plan import Capturer, LaunchPlan
from framejit.backends.fuse.launches.recorder import NotCapturable, Recorder
from framejit.backends.fuse.plan.plan_parts import PlanParts
from framejit.environment.collector import resting
from framejit.environment.signal_handlers import SignalsWait

PATIENCE: Final = 2
"""Calls of a plan before it is captured."""
MOST_PATIENCE: Final = 1024
WORTH: Final = 32
"""Launches that a capture is worth."""
KEPT: Final = 4
"""Launch plans of one plan, for inputs at other places."""

Tell = Callable[[str, str], None]
"""Given what runs, `captured` or `plain`, and why."""

_capturing = threading.Lock()


class LaunchGraphs:
    """A plan that is launched as a CUDA graph as soon as that can be.

    An input that only kernels of ours read may lie anywhere. One that a library reads is watched: if it lies elsewhere
    at each call, it is copied to a place of the graph's own; if it stays (weights, caches), the graph reads it there,
    and another is captured once it lies elsewhere.
    """

    def __init__(
        self, plan: _native.Plan, parts: PlanParts, recorder_of: Callable[[torch.device], Recorder | None], tell: Tell,
        n_seen: int | None = None, forward: Callable[[], LaunchGraphs | None] = lambda: None,
    ) -> None:
        """
        parts: What the plan was made of, with numbers for its kernels.
        n_seen: So many outputs, the first, are seen by the program; the others are kept for a backward, in memory of
            the graph's own. None: all are seen.
        forward: Of a backward, gives what keeps its inputs. They lie elsewhere once that is launched as a graph.
        """
        self._plan, self._parts, self._recorder_of, self._tell = plan, parts, recorder_of, tell
        self._n_seen, self._forward = n_seen, forward
        self._capturer: Capturer | None = None
        self._launch: LaunchPlan | None = None
        self._kept: list[LaunchPlan] = []
        self._moving: set[int] = set()
        self._addresses: tuple[int, ...] = ()
        self._calls, self._patience = 0, PATIENCE
        self._threads: set[int] = set()
        """That ran the plan. Libraries prepare themselves at a thread's first call, which can't be captured."""
        self.why_plain = ""
        """Why it is not captured; empty if it is or may be."""

    def __call__(self, *inputs: torch.Tensor) -> Any:
        launch = self._launch
        return self._plainly(inputs) if launch is None else launch.plan(*inputs)

    def consume(self, inputs: list[torch.Tensor]) -> Any:
        """Run it and empty the list: a plan that is not captured lets each input go after its last use."""
        launch = self._launch or self._considered(inputs)
        if launch is None:
            return self._plan.consume(inputs)
        results = launch.plan(*inputs)
        inputs.clear()
        return results

    @property
    def is_decided(self) -> bool:
        """Whether it was captured, or will not be."""
        return self._launch is not None or bool(self.why_plain)

    def give_up(self, why: str) -> None:
        """Run the plan itself from here on."""
        self._launch = self._capturer = None
        self._kept.clear()
        self.why_plain = why

    def _plainly(self, inputs: Sequence[torch.Tensor]) -> Any:
        """A call while there is no launch plan for where the inputs lie."""
        launch = self._considered(inputs)
        return self._plan(*inputs) if launch is None else launch.plan(*inputs)

    def _considered(self, inputs: Sequence[torch.Tensor]) -> LaunchPlan | None:
        """A new launch plan, if it is time for one. A backward waits for the forward's: what that keeps lies elsewhere
        from then on."""
        forward = self._forward()
        is_time = not self.why_plain and (forward is None or forward.is_decided)
        if is_time and _capturing.acquire(blocking=False):
            try:
                with SignalsWait():
                    self._try_to_launch(inputs)
            finally:
                _capturing.release()
        return self._launch

    def _try_to_launch(self, inputs: Sequence[torch.Tensor]) -> None:
        try:
            capturer = self._capturer
            if capturer is None:
                recorder = self._recorder(inputs)
                if recorder is None:
                    return
                capturer = self._capturer = Capturer(self._plan, self._parts, recorder, self._n_seen)
            if capturer.recorder.is_capturing() or not self._watch(capturer, inputs):
                return
            with resting(), warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                launch = capturer.capture(inputs, self._moving, self._missed)
            if launch is None:
                return
            if told:
                raise NotCapturable(f"an operation warns: {told[0].message}")
        except NotCapturable as e:
            self._stay_plain(str(e))
        except Exception as e:
            self._stay_plain(f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}")
        else:
            self._calls = 0
            self._launch = launch
            self._kept = [launch, *self._kept][:KEPT]
            copied = sum(1 for slot in capturer.watched if slot in self._moving)
            self._tell("captured", f"{copied} inputs are copied" if copied else "")

    def _recorder(self, inputs: Sequence[torch.Tensor]) -> Recorder | None:
        """The recorder of the device of the inputs; None, for good, if it has none."""
        recorders = {tensor.device: self._recorder_of(tensor.device) for tensor in inputs}
        found = [recorder for recorder in recorders.values() if recorder is not None]
        if len(found) > 1:
            raise NotCapturable("its inputs are on several devices")
        if not found:
            self.give_up("nothing of it is on a device that has launch graphs")
        return found[0] if found else None

    def _stay_plain(self, why: str) -> None:
        self.give_up(why)
        self._tell("plain", why)

    def _watch(self, capturer: Capturer, inputs: Sequence[torch.Tensor]) -> bool:
        """Note where inputs lie and which thread runs; whether it is time to capture."""
        thread = threading.get_ident()
        is_prepared = thread in self._threads
        self._threads.add(thread)
        addresses = tuple([inputs[slot].data_ptr() for slot in capturer.watched])
        if self._calls:
            self._moving |= {
                slot for slot, now, before in zip(capturer.watched, addresses, self._addresses) if now != before
            }
        self._addresses = addresses
        self._calls += 1
        return is_prepared and self._calls > self._patience

    def _missed(self, *inputs: torch.Tensor) -> Any:
        """A call that the launch plan can't run: an input lies elsewhere, the program captures a graph of its own, or
        the plan can't run with these inputs."""
        launch, capturer = self._launch, self._capturer
        if launch is None or capturer is None:
            return self._plan(*inputs)
        if launch.graph.error is not None:
            self._stay_plain(launch.graph.error)
            return self._plan(*inputs)
        if capturer.recorder.is_capturing() or _lies_there(launch, inputs):
            return self._plan(*inputs)
        known = next((other for other in self._kept if _lies_there(other, inputs)), None)
        if known is not None:
            self._launch = known
            return known.plan(*inputs)
        self._launch = None
        # a capture that was of little use makes the next one wait for longer
        self._patience = PATIENCE if launch.graph.launches >= WORTH else min(2 * self._patience, MOST_PATIENCE)
        return self._plainly(inputs)


def _lies_there(launch: LaunchPlan, inputs: tuple[torch.Tensor, ...]) -> bool:
    return all(inputs[slot].data_ptr() == address for slot, address in launch.fixed)
