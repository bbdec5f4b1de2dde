/* What differs between the CPython releases we support, and nothing else: every other file is free of version tests. What is read of a release's
 * internals stands in a file of its own, cpython_3NN.h, under names that mean the same in all of them. */
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
#ifdef Py_GIL_DISABLED
#error "framejit needs a CPython with the global interpreter lock"
#endif

#define FJ_LIKELY(x) __builtin_expect(!!(x), 1)
#define FJ_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define FJ_APART __attribute__((noinline))          /* rarely run: keep it out of the way of what surrounds it */

/* The extension is always loaded late by dlopen; these few bytes fit in the static block, and the accesses become one instruction. */
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
#define code_extra_set _PyCode_SetExtra
#else
#define code_extra_index PyUnstable_Eval_RequestCodeExtraIndex
#define code_extra_set PyUnstable_Code_SetExtra
#endif

/* Whether a dictionary has a number of its own that changes with it. */
#define DICT_NUMBERS_NONE 0
#define DICT_NUMBERS_RELIABLE 1
#define DICT_NUMBERS_WATCHED 2
#if PY_VERSION_HEX < 0x030C0000
#include "cpython_311.h"
#elif PY_VERSION_HEX < 0x030D0000
#include "cpython_312.h"
#elif PY_VERSION_HEX < 0x030E0000
#include "cpython_313.h"
#elif PY_VERSION_HEX < 0x030F0000
#include "cpython_314.h"
#else
#include "cpython_315.h"
#endif
/* ---- dictionaries ---- */
/* A dictionary gets a fresh, globally unique number at each change. dict_version() may be compared with a number kept from earlier;
 * a number to keep comes from dict_version_to_keep(), which may decline with NO_VERSION. */
#define NO_VERSION UINT64_MAX
#if FJ_DICT_NUMBERS
static inline const uint64_t *dict_version_word(PyObject *dict) { return &((PyDictObject *)dict)->ma_version_tag; }
static inline const void *dict_of_version_word(const void *word) { return (const char *)word - offsetof(PyDictObject, ma_version_tag); }
static inline uint64_t dict_version(PyObject *dict) { return *dict_version_word(dict); }
#else
static inline const void *dict_of_version_word(const void *word) { (void)word; return NULL; }
static inline const uint64_t *dict_version_word(PyObject *dict) { (void)dict; return NULL; }
static inline uint64_t dict_version(PyObject *dict) { (void)dict; return 0; }
#endif
#if FJ_DICT_NUMBERS == DICT_NUMBERS_WATCHED
/* 3.13 forgets the number on some paths that write a dictionary. A dictionary watcher hears of more of them, and ours renews the number; it
 * sees only dictionaries that carry its mark, which is part of the number. */
extern uint64_t fj_watch_mark __attribute__((visibility("hidden")));              /* 0: no watcher was to be had, no number is kept */
extern int fj_watcher __attribute__((visibility("hidden")));
static inline uint64_t dict_version_to_keep(PyObject *dict)
{
    /* writes to an instance whose dictionary shares its inline values are told to nobody */
    if (fj_watch_mark == 0 || ((PyDictObject *)dict)->ma_values != NULL)
        return NO_VERSION;
    if (!(dict_version(dict) & fj_watch_mark) && PyDict_Watch(fj_watcher, dict) < 0) {
        PyErr_Clear();
        return NO_VERSION;
    }
    return dict_version(dict);
}
#elif FJ_DICT_NUMBERS
static inline uint64_t dict_version_to_keep(PyObject *dict) { return dict_version(dict); }
#else
static inline uint64_t dict_version_to_keep(PyObject *dict) { (void)dict; return NO_VERSION; }
#endif

#ifndef FJ_INLINE_VALUES
#define FJ_INLINE_VALUES 0
static inline int dict_is_split(PyObject *dict) { (void)dict; return 0; }
static inline int split_dict_has_at(PyObject *dict, PyObject *key, Py_ssize_t place) { (void)dict; (void)key; (void)place; return 0; }
static inline PyObject *split_dict_value(PyObject *dict, Py_ssize_t place) { (void)dict; (void)place; return NULL; }
static inline Py_ssize_t split_dict_size(PyObject *dict) { (void)dict; return 0; }
#endif
/* Whether keys are only ever added to such a dictionary's keys while it is one. */
static inline int split_keys_are_fixed(PyObject *dict) { return FJ_INLINE_VALUES && dict_is_split(dict); }
int dict_watch_init(void) __attribute__((visibility("hidden")));

/* The instance dictionary if it already exists as a dictionary object, borrowed; NULL when it has to be made (or there is none). */
static inline PyObject *instance_dict_if_ready(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
    if (type->tp_flags & Py_TPFLAGS_MANAGED_DICT)
        return managed_dict_if_ready(obj);
    return type->tp_dictoffset > 0 ? *(PyObject **)((char *)obj + type->tp_dictoffset) : NULL;
}

/* Where an instance keeps its dictionary, or NULL; holds what instance_dict_if_ready() gave. */
static inline PyObject **instance_dict_slot(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
    if (type->tp_flags & Py_TPFLAGS_MANAGED_DICT)
        return managed_dict_slot(obj);
    return type->tp_dictoffset > 0 ? (PyObject **)((char *)obj + type->tp_dictoffset) : NULL;
}

#endif
