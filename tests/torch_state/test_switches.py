"""Every switch of torch that can be asked for is accounted for: guarded, read by the operations themselves when they
run, or no matter of graphs."""
from __future__ import annotations

import contextlib

import pytest
import torch

import framejit
import framejit.guards.tensor_layout  # (sets up snapshots)
from framejit import _native as native

MODULES = (
    "", "_C", "backends", "backends.cuda", "backends.cudnn", "backends.mkldnn", "autograd", "autograd.graph",
    "_C._functorch", "_C._autograd",
)
ASKS = ("get_", "_get_", "is_", "_is_", "are_", "allow_")

GUARDED = set(
    """
    get_default_device get_default_dtype is_grad_enabled is_inference_mode_enabled is_autocast_enabled
    is_autocast_cpu_enabled is_autocast_cache_enabled get_autocast_cpu_dtype get_autocast_gpu_dtype
    are_deterministic_algorithms_enabled is_deterministic_algorithms_warn_only_enabled get_deterministic_debug_mode
    is_anomaly_enabled _get_deterministic_algorithms _get_deterministic_algorithms_warn_only
    _get_deterministic_fill_uninitialized_memory _get_default_device _is_any_autocast_enabled _is_fwd_grad_enabled
    _is_torch_function_all_disabled _is_torch_function_enabled _is_torch_function_mode_enabled
    _get_torch_function_state
""".split()
)
"""Part of the state guard (native/torch/thread_state.c)."""

STANDS_ASIDE = set("_get_tracing_state _is_tracing get_interpreter_stack get_dynamic_layer_stack_depth".split())
"""Nothing is captured where these are not as usual; arguments and dispatch keys tell."""

WHEN_IT_RUNS = set(
    """
    get_float32_matmul_precision get_num_threads get_num_interop_threads get_rng_state is_anomaly_check_nan_enabled
    is_warn_always_enabled _get_warnAlways _get_backcompat_broadcast_warn _get_backcompat_keepdim_warn
    _get_blas_default_backend _get_blas_preferred_backend _get_autograd_fallback_mode
    _get_cpu_allow_fp16_reduced_precision_reduction _get_cublas_allow_bf16_reduced_precision_reduction
    _get_cublas_allow_fp16_accumulation _get_cublas_allow_fp16_reduced_precision_reduction _get_cublas_allow_tf32
    _get_cudnn_allow_tf32 _get_cudnn_benchmark _get_cudnn_depthwise_kernel _get_cudnn_deterministic _get_cudnn_enabled
    _get_cudnn_sdp_enabled _get_fa3_sdp_enabled _get_flash_sdp_enabled _get_float32_matmul_precision
    _get_linalg_preferred_backend _get_math_sdp_allow_fp16_bf16_reduction _get_math_sdp_enabled
    _get_mem_efficient_sdp_enabled _get_miopen_immediate _get_mkldnn_deterministic _get_mkldnn_enabled
    _get_nnpack_enabled _get_onednn_allow_tf32 _get_overrideable_sdp_enabled _get_qengine
    _get_rocm_fa_preferred_backend _get_sdp_priority_order _get_sm_carveout_experimental _is_xnnpack_enabled
    _is_multithreading_enabled is_multithreading_enabled _is_view_replay_enabled is_view_replay_enabled
    _is_grad_layout_enforcement_enabled _is_vmap_fallback_enabled get_inplace_requires_grad_allowed
    get_single_level_autograd_function_allowed _get_sequence_nr allow_mutation_on_saved_tensors
""".split()
)
"""Switches of ATen, of autograd's engine or of libraries below, which run in graphs as outside and ask themselves:
kernels of our own have no part in them."""

NO_MATTER = set(
    """
    _is_device_backend_autoload_enabled get_autocast_ipu_dtype get_autocast_xla_dtype is_autocast_ipu_enabled
    is_autocast_xla_enabled get_device_module get_file_path is_vulkan_available
    _get_DTensor_sharding_propagator_cache_stats _get_accelerator _get_all_dtypes _get_caught_jit_exception_class_name
    _get_caught_jit_exception_original_msg _get_cpu_capability _get_dtensor_allow_implicit_replication
    _get_graph_exec_group _get_graph_executor_optimize _get_max_operator_version _get_operator_version_map
    _get_privateuse1_backend_name _get_thread_name _get_upgraders_entry_map _get_upgraders_map_size
    _get_version_calculator_flag _is_ck_sdpa_available _is_default_mobile_cpu_allocator_set
    _is_flash_attention_available is_built is_ck_sdpa_available is_flash_attention_available _is_checkpoint_valid
    _is_kineto_stopped _get_current_graph_task_keep_graph
""".split()
)
"""What the process was built with, of other devices, of TorchScript's own compiler, or of a backward pass that runs."""


def questions() -> set[str]:
    found = set()
    for name in MODULES:
        module = torch
        for part in filter(None, name.split(".")):
            module = getattr(module, part)
        for attribute in dir(module):
            if attribute.startswith(ASKS) and callable(getattr(module, attribute)):
                with contextlib.suppress(Exception):  # it takes arguments, or a device that is not there
                    getattr(module, attribute)()
                    found.add(attribute)
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(torch.__version__.split("+")[0] != "2.13.0", reason="the lists are of one version's switches")
def test_every_switch_is_in_one_list():
    lists = GUARDED, STANDS_ASIDE, WHEN_IT_RUNS, NO_MATTER
    on_machines_with_gpus = {name for name in questions() if "cuda" in name or "nccl" in name}
    assert questions() - set.union(*lists) - on_machines_with_gpus == set()
    assert sum(map(len, lists)) == len(set.union(*lists))


@contextlib.contextmanager
def switched(turn, back):
    turn()
    try:
        yield
    finally:
        back()


def deterministic(*, warn_only=False):
    return switched(
        lambda: torch.use_deterministic_algorithms(True, warn_only=warn_only),
        lambda: torch.use_deterministic_algorithms(False),
    )


def unfilled():
    @contextlib.contextmanager
    def both():
        with deterministic():
            torch.utils.deterministic.fill_uninitialized_memory = False
            try:
                yield
            finally:
                torch.utils.deterministic.fill_uninitialized_memory = True

    return both()


SWITCHES = {
    "no_grad": torch.no_grad,
    "inference mode": torch.inference_mode,
    "no forward-mode gradients": lambda: torch.autograd.forward_ad._set_fwd_grad_enabled(False),
    "default dtype": lambda: switched(
        lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)
    ),
    "default device": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast to another dtype": lambda: torch.autocast("cpu", dtype=torch.float16),
    "autocast without its cache": lambda: torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False),
    "no torch functions": torch._C.DisableTorchFunction,
    "no torch functions of subclasses": torch._C.DisableTorchFunctionSubclass,
    "anomalies": lambda: torch.autograd.set_detect_anomaly(True),
    "deterministic": deterministic,
    "deterministic if possible": lambda: deterministic(warn_only=True),
    "deterministic without filled memory": unfilled,
}


def test_every_switch_of_the_state_guard_is_told_from_every_other():
    found = {"as usual": native.snapshot_state()}
    for name, switch in SWITCHES.items():
        with switch():
            found[name] = native.snapshot_state()
            assert native.state_matches(found[name])
            assert [other for other, state in found.items() if native.state_matches(state)] == [name], name
    assert native.state_matches(found["as usual"])
    for one, state in found.items():
        for other, another in found.items():
            assert (state == another) == (one == other), (one, other)
            assert bool(state.diff(another)) == (one != other), (one, other)


def test_anomalies_are_told_after_a_capture_without_them():
    def fn(x):
        return torch.sqrt(x - x).sum() * 0

    compiled = framejit.optimize(fn, backend="eager")
    x = torch.zeros(3, requires_grad=True)
    compiled(x)
    with (
        pytest.warns(UserWarning, match="in fn"),
        pytest.raises(RuntimeError, match="nan"),
        torch.autograd.detect_anomaly(),
    ):
        compiled(x).backward()
