"""Every kind of value and every handler: importing them registers what becomes of objects and of calls."""

# ruff: noqa: F401

from framejit.values import sym_int, sym_number
from framejit.values.arrays import array_draws, array_functions, ndarray, numbers_of_python, tensors_of_data
from framejit.values.builtins import (
    c_functions,
    cached_function,
    caught_warnings,
    constructors,
    copying,
    formatting,
    hashes,
    iteration,
    iterator_tools,
    json_text,
    known_objects,
    numbers,
    operator_module,
    own_functions,
    partial,
    reflection,
    silent_warnings,
    translation_tables,
)
from framejit.values.containers import deque, dict_views, existing_iterators, existing_tables, lists, tuples
from framejit.values.objects import (
    class_statement,
    classes,
    context_variables,
    enum_members,
    exception_values,
    existing_objects,
    lazy_properties,
    module,
    named_tuples,
    python_module,
    slot_descriptors,
    thread_locals,
    weak_references,
)
from framejit.values.objects.functions import function_values, model_values
from framejit.values.runtime_numbers import (
    clocks,
    close_tensors,
    number_functions,
    number_index,
    open_keys,
    python_random,
    size_number,
    step_counts,
    whole_numbers,
)
from framejit.values.tensors import (
    asserted_truth,
    broadcasting,
    collectives,
    conversions,
    dispatch_guards,
    inference_modes,
    overrides,
    own_generators,
    parameters,
    profiler_ranges,
    random_state,
    scripted_functions,
    tensor,
    torch_functions,
    variables,
)
from framejit.values.tensors.gradients import backward, gradient_hooks, module_hooks, requires_grad
from framejit.values.tensors.higher_order import (
    autograd_functions,
    flexible_attention,
    function_transforms,
    map_and_scan,
    repeated_functions,
)
