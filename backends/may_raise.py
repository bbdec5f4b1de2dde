"""What an operation may do besides giving a result: raise for the numbers in a tensor, warn, draw random numbers, and
exchange tensors with other processes.

The one place that says so. Operations on fakes check shapes and dtypes only; an index out of bounds, a singular matrix
or an integer division by zero show when real numbers arrive. Whatever is not known here may do both.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import torch

from framejit.backends.opaque_call import OpaqueCall
from framejit.fakes.arguments import tensors_in

Target = Callable[..., Any] | str
"""A function of torch or an operator, an overload of ATen's, or the name of a method of tensors."""


def is_quiet(target: Target) -> bool:
    """Whether an operation neither raises nor draws, whatever its arguments."""
    name = operation_name(target)
    return name in QUIET and name not in ("norm", "scaled_dot_product_attention")


def may_raise(target: Target, args: Iterable[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether an operation that worked on fakes may raise because of the numbers in its tensors. `args` may be
    fakes."""
    name, args = operation_name(target), (*args,)
    if name is None:
        return not is_collective(target)
    if target is torch.autograd.grad:
        return False
    tensors = [*tensors_in((*args, *kwargs.values()))]
    if name in QUIET or name in RANDOM or name in OF_KERNELS:
        # by singular values
        return name == "norm" and any(isinstance(arg, str) and arg == "nuc" for arg in (*args, *kwargs.values()))
    if name in SUBSCRIPTS:
        return _subscript_may_raise(args, kwargs)
    if name in DIVISIONS:
        whole = not any(tensor.is_floating_point() or tensor.is_complex() for tensor in tensors) and not any(
            isinstance(arg, float) for arg in args
        )
        by_number = len(args) > 1 and isinstance(args[1], int) and args[1] != 0
        rounds = name not in ("div", "divide") or kwargs.get("rounding_mode") is not None
        return whole and not by_number and rounds and _some_on_cpu(tensors)
    if name in CHECKED_ON_CPU:
        return _some_on_cpu(tensors)
    return True


def is_collective(target: Target) -> bool:
    """Whether an operation exchanges tensors with other processes. Done twice here and once there, each would be given
    what another one of theirs has sent, or wait for ever. That one raises is not provided for: then processes are lost
    to each other anyway."""
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace in COLLECTIVES
    return isinstance(target, torch._ops.OpOverloadPacket) and (
        target._qualified_op_name.partition("::")[0] in COLLECTIVES
    )


def converts_number(target: Target, position: int | str) -> bool:
    """Whether an operation converts the number that is its argument (by position, or keyword) to the dtype of a tensor,
    which raises where that can't hold it."""
    name = operation_name(target)
    if name == "setitem":
        return position == 2
    return name in CONVERTING or name in SCALING and isinstance(position, str)


def always_works(target: Target, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> bool:
    """Whether what worked on fakes surely works on real tensors, if it does not raise for their numbers: a kernel
    exists for their dtypes, and fakes refuse all that it refuses."""
    tensors = [*tensors_in((*args, *kwargs.values(), result))]
    name, dtypes = operation_name(target), {tensor.dtype for tensor in tensors}
    if name is None or name in ONLY_OF_SOME or any(tensor.layout is not torch.strided for tensor in tensors):
        return False
    if _is_loose_on_fakes(name, (*args, *kwargs.values()), tensors):
        return False
    if any(type(size) is int and size == 0 for tensor in tensors for size in tensor.shape):
        return False  # fakes find the greatest of no elements, too
    is_one = dtypes <= FLOATS and len(dtypes) < 2  # products of two dtypes, and others, work on fakes only
    return (
        is_one and (name in QUIET or name in SUBSCRIPTS or name in DIVISIONS) or dtypes <= COMMON and name in OF_COMMON
    )


def _is_loose_on_fakes(name: str, values: Sequence[Any], tensors: list[torch.Tensor]) -> bool:
    """Whether fakes may accept arguments that the operation refuses."""
    if name in LOOSE_ON_FAKES:
        return True
    if name in LOOSE_OF_DIMENSIONS:
        dims = max(1, tensors[0].dim()) if tensors else 0
        return any(type(value) is int and not -dims <= value < dims for value in values)
    return name in LOOSE_OF_BOOLEANS and any(type(value) is bool for value in values)


def warns_at_times(target: Target) -> bool:
    """Whether there are arguments with which `may_warn`."""
    name = operation_name(target)
    return name in SPREADS or name in CASTS or name in MASKED or target is getattr


def may_warn(target: Target, args: Iterable[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether ATen may warn of an operation, so that it has to run though nobody needs its results. `args` may be
    fakes."""
    name, args = operation_name(target), (*args,)
    tensors = [*tensors_in((*args, *kwargs.values()))]
    if name in SPREADS:
        return any(_has_few_elements(tensor, args, kwargs) for tensor in tensors)
    if name in CASTS:
        return any(tensor.is_complex() for tensor in tensors) and _is_made_real(
            name, (*args, *kwargs.values()), tensors
        )
    if target is getattr:
        return args[1] == "T" and args[0].dim() != 2
    if name in MASKED:
        return any(tensor.dtype == torch.uint8 for tensor in tensors)
    return False


def draws_numbers(target: Target, args: Iterable[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether an operation may change the state of a random number generator."""
    name, args = operation_name(target), (*args,)
    if name is None:
        return not is_collective(target)
    if target is torch.autograd.grad:
        return False
    if name == "scaled_dot_product_attention":
        return bool(args[4] if len(args) > 4 else kwargs.get("dropout_p", 0.0))
    if "dropout" in name:
        training = args[2] if len(args) > 2 else kwargs.get("training", kwargs.get("train", True))
        return training is not False
    if name in QUIET or name in SUBSCRIPTS or name in DIVISIONS or name in CHECKED_ON_CPU or name in CHECKED:
        return False
    if name == "of_numbers":  # framejit's own
        return False
    return name in RANDOM or _is_seeded(name)


@functools.cache
def _is_seeded(name: str) -> bool:
    """Whether torch says that an operation draws random numbers (`nondeterministic_seeded` in its
    native_functions.yaml), or knows none of that name."""
    forms = [form for each in (name, name + "_") if (form := getattr(torch.ops.aten, each, None)) is not None]
    overloads = [getattr(form, overload) for form in forms for overload in form.overloads()]
    return not forms or any(torch.Tag.nondeterministic_seeded in overload.tags for overload in overloads)


def operation_name(target: Target) -> str | None:
    """The name all forms of an operation share: `add` for torch.add, Tensor.add_, operator.iadd and aten::add.Tensor.
    None for what is not torch's."""
    if isinstance(target, OpaqueCall):
        return target.operation
    if isinstance(target, str):
        name = target
    elif isinstance(target, torch._ops.OpOverload):
        if target.namespace == "framejit":
            return target._opname
        if target.namespace != "aten":
            return PACKED.get(target._opname) if target.namespace in ("mkldnn", "mkl") else None
        name = target._opname
    elif isinstance(target, torch._ops.OpOverloadPacket):
        if not target._qualified_op_name.startswith("aten::"):
            return None
        name = target.__name__
    else:
        module = getattr(target, "__module__", None) or ""
        name = getattr(target, "__name__", "")
        if target is getattr:
            return name
        if module == "_operator":
            return _OPERATORS.get(name, name)
        if module != "torch" and not module.startswith("torch."):
            return None
    if name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
        return _OPERATORS.get(name, name)
    if name.endswith("_"):
        name = name[:-1]
    if name.startswith("_foreach_"):
        name = name.removeprefix("_foreach_")
    for family in ("special_", "fft_"):
        if name.startswith(family) and name.removeprefix(family) in QUIET:
            return name.removeprefix(family)
    return name


def _subscript_may_raise(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Reading or writing at places: slices and numbers are checked by shapes alone, a mask only selects what is there,
    a list becomes a tensor."""
    place = args[1] if len(args) > 1 else None
    numbers = any(
        isinstance(item, list) and not [*tensors_in(item)] for item in (place if isinstance(place, tuple) else (place,))
    )
    items = [*tensors_in(args[1:2])]
    mask_only = all(item.dtype in (torch.bool, torch.uint8) for item in items)
    value = args[2] if len(args) > 2 else 0
    one_value = not isinstance(value, torch.Tensor) or value.dim() == 0
    return (numbers or (bool(items) and not (mask_only and one_value))) and _some_on_cpu([*tensors_in(args[:1])])


def _has_few_elements(tensor: torch.Tensor, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a spread over these dimensions is over no more elements than are taken off their number. A dimension that
    is left open has two or more: where it does not, that is assumed of it."""
    dims = args[1] if len(args) > 1 and not isinstance(args[1], bool) else kwargs.get("dim", kwargs.get("axis"))
    dims = (dims,) if isinstance(dims, (int, torch.SymInt)) else (*(dims or ()),) or range(tensor.dim())
    sizes = [size if type(size) is int else 2 for size in tensor.shape]
    over = {dim % max(len(sizes), 1) for dim in dims if -len(sizes) <= dim < len(sizes)}
    if not all(size for dim, size in enumerate(sizes) if dim not in over):
        return True  # no results: then it is over none
    return math.prod(sizes[dim] for dim in over) <= _correction(args, kwargs)


def _is_made_real(name: str | None, values: Iterable[Any], tensors: list[torch.Tensor]) -> bool:
    """Whether a cast of complex numbers, or a write of them, is to some other dtype."""
    dtype = next((value for value in values if isinstance(value, torch.dtype)), None)
    return (
        not dtype.is_complex
        if dtype is not None
        else name in REAL or not all(tensor.is_complex() for tensor in tensors)
    )


def _correction(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> float:
    """What is taken off the number of elements that a spread is over."""
    flags = [given for given in (*args[1:3], kwargs.get("unbiased")) if isinstance(given, bool)]
    if flags:
        return float(flags[0])
    given = args[2] if len(args) > 2 else kwargs.get("correction")
    return 1.0 if given is None else float(given)


def _some_on_cpu(tensors: list[torch.Tensor]) -> bool:
    """Whether the host sees the numbers. Kernels of accelerators assert on the device, which no program can catch."""
    return not tensors or any(tensor.device.type not in ("cuda", "xpu", "meta") for tensor in tensors)


COLLECTIVES: Final = frozenset(("_c10d_functional", "_c10d_functional_autograd"))
"""The namespaces of operations that processes do together."""

PACKED: Final = {"_convolution_pointwise": "conv2d", "_mkl_linear": "linear"}
"""Operations of torch's libraries for CPUs, and those of ATen that they do with packed weights."""

_OPERATORS: Final = {
    **{f"i{name}": name for name in "add sub mul matmul floordiv mod truediv pow and or xor lshift rshift".split()},
    **{f"r{name}": name for name in "add sub mul matmul floordiv mod truediv pow and or xor lshift rshift".split()},
    "inv": "invert", "and_": "and", "or_": "or", "not_": "not",
}
"""Operators in place, with exchanged operands, and with other names in the module `operator`."""

OF_KERNELS: Final = frozenset("philox_bernoulli philox_uniform philox_normal".split())
"""Framejit's own operations: random numbers that follow from their arguments (fuse/random_numbers)."""

SUBSCRIPTS: Final = frozenset("getitem setitem index index_put _index_put_impl _unsafe_index _unsafe_index_put".split())
"""Operations on a tensor and places in it, which may be numbers, slices or tensors."""

DIVISIONS: Final = frozenset("floor_divide remainder fmod div divide floordiv mod".split())
"""Operations that raise where an integer is divided by zero."""

SPREADS: Final = frozenset("var std var_mean std_mean".split())
"""Operations that warn of too few elements."""

REAL: Final = frozenset("float double half bfloat16 int long short byte char".split())
CASTS: Final = REAL | {"_to_copy", "copy", "to", "type", "type_as", "setitem"}
"""Operations that warn where they drop imaginary parts."""

MASKED: Final = frozenset("where masked_fill masked_select masked_scatter index index_put getitem setitem".split())
"""Operations that warn of masks that are no booleans."""

CHECKED_ON_CPU: Final = frozenset(
    """
    gather scatter scatter_add scatter_reduce index_add index_copy index_fill index_reduce index_select put take
    take_along_dim embedding embedding_bag _embedding_bag _embedding_bag_forward_only one_hot nll_loss nll_loss2d
    nll_loss_nd nll_loss_forward nll_loss2d_forward cross_entropy cross_entropy_loss multi_margin_loss
    multilabel_margin_loss multilabel_margin_loss_forward binary_cross_entropy masked_scatter max_unpool1d
    max_unpool2d max_unpool3d
""".split()
)
"""Operations whose numbers are checked where the tensors are on the CPU, and that draw nothing."""

CHECKED: Final = frozenset(
    """
    cholesky cholesky_inverse cholesky_solve inverse lu_solve pinverse qr svd geqrf ormqr orgqr triangular_solve
    logdet matrix_power linalg_cholesky linalg_inv linalg_solve linalg_solve_ex linalg_svd linalg_svdvals linalg_eig
    linalg_eigh linalg_eigvals linalg_eigvalsh linalg_qr linalg_lu linalg_lu_factor linalg_ldl_factor linalg_lstsq
    linalg_pinv linalg_matrix_rank linalg_matrix_norm linalg_matrix_power linalg_norm linalg_cond linalg_tensorinv
    linalg_tensorsolve linalg_solve_triangular _linalg_check_errors _linalg_eigh _linalg_svd _linalg_solve_ex bincount
    histc histogram histogramdd quantile nanquantile repeat_interleave ctc_loss _ctc_loss istft item is_nonzero
    _local_scalar_dense _assert_async _functional_assert_async _assert_scalar embedding_renorm segment_reduce
    tensor_split masked_select nonzero unique _unique2 mvlgamma
""".split()
)
"""Operations that check numbers wherever they are, and draw nothing."""

SCALING: Final = frozenset("add sub subtract rsub".split())
"""Operations that convert the number that their keyword `alpha` has."""

CONVERTING: Final = frozenset(
    """
    addbmm addcdiv addcmul addmm addmv addr baddbmm celu clamp clamp_max clamp_min clip constant_pad_nd elu fill full
    full_like hardshrink hardtanh index_fill leaky_relu lerp logit masked_fill nan_to_num new_full pad pow scalar_tensor
    softplus softshrink threshold where
""".split()
)
"""Operations that convert the numbers among their arguments."""

RANDOM: Final = frozenset(
    """
    dropout dropout1d dropout2d dropout3d native_dropout alpha_dropout feature_dropout feature_alpha_dropout rrelu
    rrelu_with_noise gumbel_softmax rand rand_like randn randn_like randint randint_like randperm uniform exponential
    cauchy log_normal geometric random fractional_max_pool2d fractional_max_pool3d fractional_max_pool2d_with_indices
    fractional_max_pool3d_with_indices
""".split()
)
"""Operations that draw random numbers, and raise for no number."""

QUIET: Final = frozenset(
    # elementwise
    """
    abs absolute acos acosh add addcdiv addcmul angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh
    atan atan2 atanh bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil celu
    clamp clamp_max clamp_min clip complex conj conj_physical copysign cos cosh deg2rad digamma elu eq erf erfc erfinv
    exp exp2 expm1 fix float_power floor fmax fmin frac frexp ge gelu glu greater greater_equal gt hardshrink
    hardsigmoid hardswish hardtanh heaviside hypot i0 i0e i1 i1e igamma igammac imag isclose isfinite isinf isnan
    isneginf isposinf isreal ldexp le leaky_relu lerp less less_equal lgamma log log10 log1p log2 log_sigmoid
    logsigmoid log_sigmoid_forward logaddexp logaddexp2 logical_and logical_not logical_or logical_xor logit lt
    maximum minimum mish mul multiply nan_to_num ne neg negative nextafter not_equal polar polygamma positive pow
    prelu _prelu_kernel rad2deg real reciprocal relu relu6 round rsqrt rsub selu sgn sigmoid expit sign signbit silu
    sin sinc sinh softplus softshrink softsign sqrt square sub subtract tan tanh tanhshrink threshold true_divide
    truediv trunc where xlogy xlog1py entr erfcx ndtr ndtri log_ndtr zeta gammaln psi masked_fill fill zero copy
    set_data invert not and or xor lshift rshift pos lcm gcd
""".split()
    # reductions and scans
    + """
        all amax amin aminmax any argmax argmin count_nonzero cummax cummin cumprod cumsum dist logcumsumexp logsumexp
        max mean median min mode nanmean nanmedian nansum norm prod std std_mean sum sum_to_size trace var var_mean
        cumulative_trapezoid trapezoid trapz topk sort argsort msort diff softmax _softmax log_softmax _log_softmax
        softmin _safe_softmax searchsorted bucketize allclose equal
    """.split()
    # products, convolutions, pooling, norms and losses
    + """
        addbmm addmm addmv addr baddbmm bilinear bmm chain_matmul cdist cross dot einsum inner kron linear matmul mm
        mv outer pairwise_distance pdist tensordot vdot linalg_cross linalg_det linalg_diagonal
        linalg_householder_product linalg_matmul linalg_multi_dot linalg_slogdet linalg_vecdot linalg_vector_norm
        linalg_cholesky_ex linalg_inv_ex linalg_lu_factor_ex det slogdet conv1d conv2d conv3d conv_tbc
        conv_transpose1d conv_transpose2d conv_transpose3d convolution _convolution scaled_dot_product_attention
        adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d
        adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d avg_pool1d avg_pool2d avg_pool3d max_pool1d
        max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices lp_pool1d
        lp_pool2d lp_pool3d batch_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training
        group_norm native_group_norm instance_norm layer_norm native_layer_norm local_response_norm normalize rms_norm
        _fused_rms_norm renorm cosine_similarity cosine_embedding_loss hinge_embedding_loss huber_loss kl_div l1_loss
        margin_ranking_loss mse_loss poisson_nll_loss smooth_l1_loss soft_margin_loss triplet_margin_loss
        binary_cross_entropy_with_logits _fused_adagrad _fused_adam _fused_adamw _fused_sgd fft fft2 fftn hfft hfft2
        hfftn ifft ifft2 ifftn ihfft ihfft2 ihfftn irfft irfft2 irfftn rfft rfft2 rfftn fftshift ifftshift fftfreq
        rfftfreq stft grid_sample grid_sampler grid_sampler_2d grid_sampler_3d affine_grid affine_grid_generator
        interpolate upsample upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d
        upsample_nearest2d upsample_nearest3d upsample_trilinear3d _upsample_bicubic2d_aa _upsample_bilinear2d_aa
        _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d fold unfold col2im im2col
    """.split()
    # what moves, joins and makes memory
    + """
        adjoint alias argwhere as_strided as_strided_scatter atleast_1d atleast_2d atleast_3d block_diag
        broadcast_tensors broadcast_to cartesian_prod cat channel_shuffle chunk clone column_stack combinations concat
        concatenate constant_pad_nd contiguous detach diag diag_embed diagflat diagonal diagonal_scatter dsplit dstack
        expand expand_as fill_diagonal flatten flip fliplr flipud hsplit hstack lift lift_fresh lift_fresh_copy mH mT
        matrix_H getattr meshgrid moveaxis movedim narrow numpy_T pad _pad_circular _pad_enum reflection_pad1d
        reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d permute pixel_shuffle
        pixel_unshuffle ravel repeat reshape _reshape_alias reshape_as resolve_conj resolve_neg roll rot90 row_stack
        select select_scatter slice slice_scatter split split_with_sizes squeeze stack swapaxes swapdims t tile
        transpose tril tril_indices triu triu_indices unbind unflatten unsafe_chunk unsafe_split
        unsafe_split_with_sizes unsqueeze _unsafe_view view view_as view_as_complex view_as_real vsplit vstack vander
        arange bartlett_window blackman_window empty empty_like empty_permuted empty_strided eye full full_like
        hamming_window hann_window kaiser_window linspace logspace new_empty new_empty_strided new_full new_ones
        new_tensor new_zeros ones ones_like scalar_tensor tensor zeros zeros_like as_tensor to type type_as _to_copy
        float double half bfloat16 int long short bool byte char cfloat cdouble cpu cuda requires_grad numel size
        stride dim storage_offset is_same_size sym_size sym_stride sym_numel _increment_version _set_grad_enabled
        set_autocast_enabled set_autocast_dtype set_autocast_cache_enabled clear_autocast_cache
        autocast_increment_nesting autocast_decrement_nesting _enter_inference_mode _exit_inference_mode
        enter_inside
    """.split()
    # a loop over what is quiet (`data_loop.py`)
    + ["while_loop"]
)
"""Operations that give a result and do nothing else, whatever the numbers."""

FLOATS: Final = frozenset((torch.float32, torch.float64))
COMMON: Final = FLOATS | {torch.int64, torch.bool}
ONLY_OF_SOME: Final = frozenset(
    """
    bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift gcd lcm addr and or xor not
    invert lshift rshift
""".split()
)
"""Operations without a kernel for some common dtype, which fakes do not know."""
LOOSE_ON_FAKES: Final = frozenset(
    """
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d
    as_strided_scatter binary_cross_entropy_with_logits bucketize celu clip diagonal_scatter instance_norm logsumexp
    searchsorted slice_scatter soft_margin_loss
""".split()
)
"""Operations that refuse arguments which fakes accept. `tests/side_effects/test_what_fakes_accept.py` asks which do."""
LOOSE_OF_DIMENSIONS: Final = frozenset("argsort cummax cummin softmax softmin sort".split())
"""Fakes accept dimensions that are none."""
LOOSE_OF_BOOLEANS: Final = frozenset("rsub sub subtract".split())
"""Fakes accept booleans as numbers."""
OF_COMMON: Final = frozenset(
    """
    add mul eq ne lt le gt ge where copy fill zero sum mean cat stack getitem setitem any all logical_and logical_or
    logical_not view reshape flatten squeeze unsqueeze permute transpose t getattr expand expand_as contiguous clone
    detach select slice narrow split chunk unbind zeros_like ones_like empty_like full_like zeros ones full arange to
    type float double long bool size stride dim numel
""".split()
)
"""Operations that have a kernel for all of `COMMON`."""
