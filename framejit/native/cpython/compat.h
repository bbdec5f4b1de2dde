/* What differs between the CPython releases we support, and nothing else: every other file is free of version tests.
 * What is read of a release's internals stands in a file of its own, cpython_3NN.h, under names that mean the same in
 * all of them. */
#ifndef FRAMEJIT_COMPAT_H
#define FRAMEJIT_COMPAT_H

#define PY_SSIZE_T_CLEAN
/* The interpreter frame and the managed dictionary slots are only declared in the internal headers. */
#define Py_BUILD_CORE_MODULE 1
#include <Python.h>
#include <structmember.h>
#include <stdint.h>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x03100000
#error "framejit knows the internals of CPython 3.11 to 3.15 only"
#endif
#if defined(Py_GIL_DISABLED) && PY_VERSION_HEX < 0x030E0000
#error "framejit knows the free-threaded build from CPython 3.14 on only"
#endif

#define FJ_LIKELY(x) __builtin_expect(!!(x), 1)
#define FJ_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define FJ_APART __attribute__((noinline))          /* rarely run: keep it out of the way of what surrounds it */

/* The extension is always loaded late by dlopen; these few bytes fit in the static block, and the accesses become one
 * instruction. */
#define FJ_THREAD_LOCAL __thread __attribute__((tls_model("initial-exec")))

/* ---- attributes: without making an AttributeError where there is none ---- */
#if PY_VERSION_HEX >= 0x030D0000
#define optional_attribute PyObject_GetOptionalAttr
#else
#define optional_attribute _PyObject_LookupAttr
#endif

/* ---- exceptions: save and restore around code that must not disturb the one in flight ---- */
#if PY_VERSION_HEX < 0x030C0000
typedef struct { PyObject *type, *value, *traceback; } SavedError;
static inline SavedError error_save(void) { SavedError e; PyErr_Fetch(&e.type, &e.value, &e.traceback); return e; }
static inline void error_restore(SavedError e) { PyErr_Restore(e.type, e.value, e.traceback); }
#else
typedef struct { PyObject *value; } SavedError;
static inline SavedError error_save(void) { return (SavedError){PyErr_GetRaisedException()}; }
static inline void error_restore(SavedError e) { PyErr_SetRaisedException(e.value); }
#endif

/* ---- data of others in a code object ---- */
#if PY_VERSION_HEX < 0x030C0000
#define code_extra_index _PyEval_RequestCodeExtraIndex
#define code_extra_get _PyCode_GetExtra
#define code_extra_set _PyCode_SetExtra
#else
#define code_extra_index PyUnstable_Eval_RequestCodeExtraIndex
#define code_extra_get PyUnstable_Code_GetExtra
#define code_extra_set PyUnstable_Code_SetExtra
#endif

#if PY_VERSION_HEX < 0x030C0000
#include "cpython/releases/cpython_311.h"
#elif PY_VERSION_HEX < 0x030D0000
#include "cpython/releases/cpython_312.h"
#elif PY_VERSION_HEX < 0x030E0000
#include "cpython/releases/cpython_313.h"
#elif PY_VERSION_HEX < 0x030F0000
#include "cpython/releases/cpython_314.h"
#else
#include "cpython/releases/cpython_315.h"
#endif

/* ---- dictionaries; see dict_watch.h, too ---- */
#ifndef FJ_INLINE_VALUES
#define FJ_INLINE_VALUES 0
static inline int dict_is_split(PyObject *dict) { (void)dict; return 0; }
static inline int split_dict_has_at(PyObject *dict, PyObject *key, Py_ssize_t place)
{
    (void)dict;
    (void)key;
    (void)place;
    return 0;
}
static inline PyObject *split_dict_value(PyObject *dict, Py_ssize_t place) { (void)dict; (void)place; return NULL; }
static inline Py_ssize_t split_dict_size(PyObject *dict) { (void)dict; return 0; }
#endif
/* Whether keys are only ever added to such a dictionary's keys while it is one. */
static inline int split_keys_are_fixed(PyObject *dict) { return FJ_INLINE_VALUES && dict_is_split(dict); }
#endif
