"""Which of CPython's test modules run with every test method optimized, and the tests whose outcome may differ, each
with its cause."""

MODULES = [
    # builtin types
    "test_bool",
    "test_int",
    "test_float",
    "test_complex",
    "test_list",
    "test_tuple",
    "test_range",
    "test_slice",
    "test_set",
    "test_dict",
    "test_dictviews",
    "test_bytes",
    "test_memoryview",
    "test_userdict",
    "test_userlist",
    "test_userstring",
    # builtin functions and operators
    "test_builtin",
    "test_enumerate",
    "test_iter",
    "test_compare",
    "test_richcmp",
    "test_augassign",
    "test_binop",
    "test_index",
    "test_isinstance",
    "test_hash",
    "test_sort",
    "test_operator",
    # the standard library that programs lean on
    "test_collections",
    "test_ordered_dict",
    "test_defaultdict",
    "test_deque",
    "test_itertools",
    "test_functools",
    "test_contextlib",
    "test_re",
    "test_dataclasses",
    "test_enum",
    "test_copy",
    "test_heapq",
    "test_bisect",
    "test_abc",
    "test_types",
    "test_weakref",
    "test_string",
    "test_textwrap",
    "test_statistics",
    "test_fractions",
    # the language
    "test_exceptions",
    "test_raise",
    "test_baseexception",
    "test_with",
    "test_generators",
    "test_generator_stop",
    "test_genexps",
    "test_listcomps",
    "test_dictcomps",
    "test_setcomps",
    "test_class",
    "test_descr",
    "test_super",
    "test_property",
    "test_metaclass",
    "test_subclassinit",
    "test_call",
    "test_extcall",
    "test_keywordonlyarg",
    "test_positional_only_arg",
    "test_funcattrs",
    "test_scope",
    "test_grammar",
    "test_opcodes",
    "test_named_expressions",
    "test_fstring",
    "test_patma",
    "test_tstring",
    "test_annotationlib",
    "test_unpack",
    "test_unpack_ex",
    "test_dynamic",
    "test_decorators",
    "test_contains",
    "test_global",
    "test_unary",
    "test_exception_variations",
    "test_exception_hierarchy",
    # numbers, and more of the standard library
    "test_long",
    "test_pow",
    "test_math",
    "test_numeric_tower",
    "test_format",
    "test_array",
    "test_struct",
    "test_weakset",
    "test_reprlib",
    "test_copyreg",
    "test_typing",
    "test_traceback",
    "test_unittest",
]

QUICK = [
    "test_abc",
    "test_binop",
    "test_bisect",
    "test_bool",
    "test_copy",
    "test_dictcomps",
    "test_dynamic",
    "test_extcall",
    "test_fstring",
    "test_generator_stop",
    "test_genexps",
    "test_hash",
    "test_index",
    "test_metaclass",
    "test_named_expressions",
    "test_opcodes",
    "test_positional_only_arg",
    "test_setcomps",
    "test_sort",
    "test_string",
    "test_textwrap",
    "test_userlist",
]
"""The modules that end as plain Python does and take some seconds each: what the test suite runs. The command runs all
of MODULES."""

_TRACED = "sys.settrace is told of the lines of the replacement, which has not those that the match statement had."
_REUSED = (
    "Captured code makes each result tuple anew, where CPython's iterator fills one that nobody else holds again; only "
    "id() tells."
)
_COUNTED = "Guards hold the bytes that they compare with, and sys.getrefcount counts that."
_PASSED = (
    "What a graph break is about to pass is held by variables of the step that passes it, and sys.getrefcount counts "
    "that."
)
_HELD = (
    "The code made for a function holds the classes and C functions that it has met and tells apart by identity, until "
    "the function goes."
)
_TEXT = (
    "Text that captured code makes is a constant of the replacement; equal ones are one object, as Python allows for "
    "what can't change."
)
_SMALL = (
    "It counts the references to the int 10, which the code that is made meanwhile holds too, as every code does its "
    "constants."
)
_CONSTANT = "It counts the references to a constant, which the code that is made meanwhile holds too."
_NAN = (
    "A number that changes from call to call is negated by a product with -1, which leaves the sign of a NaN as it is."
)
_UNREAD = (
    "A frame that a graph break ended has the variables that are read again and those whose end could be seen; "
    "tracebacks show no others."
)
_BARE = (
    "The traceback of what captured code raised and caught has files, lines and columns; its frames hold no variables."
)
_REST = (
    "What follows a graph break runs in a frame of its own; who compares the frame objects of one call, or their "
    "lines, can tell."
)
_LINES = "It wants linecache empty, which also keeps the lines of source that framejit and torch have read."
_KEY = "A class's dict has a key with an __eq__ of its own, which looking up any name runs; it raises there."
_STACK = "It calls Python where the C stack ends: a frame hook keeps more of it free than CPython does."
_GAPS = (
    "A dict that is built again has no gaps where keys were deleted, and only iterators that go on over another table "
    "in its place tell."
)
_VECTORCALL = (
    "It sets the vectorcall of a function from C, which makes calls do something else than the function's code; "
    "captured calls go by the code."
)
_NO_MEMORY = (
    "It makes every allocation of the process fail, and what captured code does between two of the program's steps "
    "allocates."
)
_EARLY = (
    "It wants no garbage collection between two of its lines; CPython collects after so many allocations, and a "
    "capture makes many."
)
_BETWEEN = (
    "Another thread takes a key out of the dict between the guards of a call and the code that they guard, which then "
    "finds none where CPython looks and takes in one step."
)
_TIMES = "It compares times of some milliseconds."
_LINE = (
    "f_lineno of a finished frame is the line it was left at, and one frame may be finished by the replacement of its "
    "rest."
)

EXCUSED: dict[str, str] = {
    "test.test_descr.ClassPropertiesAndMethods.test_restored_object_new": (
        "CPython is known to fail it, and forgets that a deleted __new__ was inherited."
    ),
    "test.test_descr.MiscTests.test_type_lookup_mro_reference": _KEY,
    "test.test_descr.SharedKeyTests.test_subclasses": (
        "sys.getsizeof tells whether instances share their keys, which those that are built again do not."
    ),
    "test.test_exceptions.NameErrorTests.test_name_error_suggestions": _UNREAD,
    **{
        f"test.test_traceback.{name}": _BARE
        for name in (
            "CPythonSuggestionFormattingTests.test_name_error_suggestions",
            "PurePythonSuggestionFormattingTests.test_name_error_suggestions", "MiscTracebackCases.test_clear",
            "TestColorizedTraceback.test_colorized_traceback_from_exception_group",
            "TestTracebackException.test_comparison_params_variations", "TestTracebackException.test_from_exception",
            "TestTracebackException.test_print",
        )
    },
    **{
        f"test.test_traceback.TestStack.test_{name}": _REST
        for name in ("custom_format_frame", "format_locals", "walk_stack")
    },
    "test.test_traceback.TestStack.test_extract_stackup_deferred_lookup_lines": _LINES,
    "test.test_traceback.TestTracebackException.test_lookup_lines": _LINES,
    "test.test_re.ReTests.test_search_anchor_at_beginning": (
        "It wants its search done in a tenth of a second, and the first call of a method is captured."
    ),
    **{
        f"test.test_int.{kind}StrDigitLimitsTests.test_denial_of_service_prevented_{way}": _TIMES
        for kind in ("Int", "IntSubclass")
        for way in ("int_to_str", "str_to_int")
    },
    "test.test_dict.DictTest.test_copy_empty_no_memory": _NO_MEMORY,
    "test.test_bytes.ByteArrayTest.test_resize_error": _NO_MEMORY,
    "test.test_bytes.ByteArrayTest.test_take_bytes_error": _NO_MEMORY,
    "test.test_dict.DictTest.test_reversed_dict_after_clear_and_restore": _GAPS,
    "test.test_dict.DictTest.test_reversed_dict_keys_changed_during_iteration": _GAPS,
    "test.test_exceptions.TestInvalidExceptionMatcher.test_given_exception_matches_deeply_nested_tuple": _STACK,
    "test.test_call.TestRecursion.test_super_deep": (
        "It goes 90,000 Python calls deep; under a frame hook each one takes C stack."
    ),
    **{
        f"test.test_call.TestPEP590.test_setvectorcall{part}": _VECTORCALL
        for part in ("", "_load_attr_specialization_deopt", "_load_attr_specialization_skip")
    },
    "test.test_functools.TestLRUC.test_lru_cache_weakrefable": _HELD,
    "test.test_functools.TestLRUPy.test_lru_cache_weakrefable": _HELD,
    "test.test_dataclasses.TestSlots.test_original_class_is_gced": _HELD,
    "test.test_weakref.ReferencesTestCase.test_callback_in_cycle_resurrection": _HELD,
    "test.test_weakref.ReferencesTestCase.test_cfunction": _HELD,
    "test.test_weakref.MappingTestCase.test_threaded_weak_valued_pop": _BETWEEN,
    "test.test_weakref.MappingTestCase.test_threaded_weak_valued_setdefault": _BETWEEN,
    "test.test_weakref.ReferencesTestCase.test_callbacks_on_callback": _EARLY,
    "test.test_list.ListTest.test_list_overwrite_local": _PASSED,
    "test.test_coroutines.CoroutineTest.test_for_2": _CONSTANT,
    "test.test_math.MathTests.test_signbit": _NAN,
    "test.test_class.ClassTests.testSetattrWrapperNameIntern": _TEXT,
    **{
        f"test.test_operator.{kind}OperatorTestCase.test_{name}": _TEXT
        for kind in ("C", "Py")
        for name in ("is", "is_not")
    },
    **{
        f"test.test_array.{kind}Test.test_bug_782369": _SMALL
        for part in ("Byte", "Short", "Int", "Long", "LongLong")
        for kind in (part, f"Unsigned{part}")
    },
    **{f"test.test_array.{kind}Test.test_bug_782369": _SMALL for kind in ("Double", "Float", "Unicode")},
    "test.test_dict.DictTest.test_splittable_popitem": (
        "sys.getsizeof tells whether a dict shares its keys, which one that is built again does not."
    ),
    **{
        f"test.test_patma.TestTracing.test_{name}": _TRACED
        for name in (
            "default_capture", "default_wildcard", "no_default", "only_default_capture", "only_default_wildcard",
            "unreachable_code",
        )
    },
    **{
        f"test.test_itertools.TestBasicOps.test_{name}_tuple_reuse": _REUSED
        for name in ("combinations", "combinations_with_replacement", "permutations", "product", "zip", "zip_longest")
    },
    **{
        f"test.test_enumerate.{case}.test_tuple_reuse": _REUSED
        for case in (
            "EnumerateStartTestCase", "EnumerateTestCase", "SubclassTestCase", "TestBig", "TestLongStart",
            "TestStart", "TestThreadSafety",
        )
    },
    **{
        f"test.test_memoryview.BytesMemory{kind}Test.test_{name}": _COUNTED
        for kind in ("view", "Slice", "SliceSlice")
        for name in ("getbuffer", "getitem", "setitem_readonly")
    },
    **{
        f"test.test_exceptions.PEP626Tests.test_{name}": _LINE
        for name in ("lineno_after_other_except", "lineno_in_try", "missing_lineno_shows_as_none")
    },
}
