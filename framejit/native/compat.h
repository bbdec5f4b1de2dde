/* What differs between the CPython releases we support, and nothing else: every other file is free of version tests. */
#ifndef FRAMEJIT_COMPAT_H
#define FRAMEJIT_COMPAT_H

#define PY_SSIZE_T_CLEAN
/* The interpreter frame and the managed dictionary slots are only declared in the internal headers. */
#define Py_BUILD_CORE_MODULE 1
#include <Python.h>
#include <structmember.h>
#include <stdint.h>
#include "internal/pycore_frame.h"
#include "internal/pycore_object.h"
#include "internal/pycore_dict.h"

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030E0000
#error "framejit knows the frame layout of CPython 3.11, 3.12 and 3.13 only"
#endif
#ifdef Py_GIL_DISABLED
#error "framejit needs a CPython with the global interpreter lock"
#endif

#define FJ_V311 (PY_VERSION_HEX < 0x030C0000)
#define FJ_V312 (PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000)
#define FJ_V313 (PY_VERSION_HEX >= 0x030D0000)

#define FJ_LIKELY(x) __builtin_expect(!!(x), 1)
#define FJ_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define FJ_APART __attribute__((noinline))          /* rarely run: keep it out of the way of what surrounds it */

/* The extension is always loaded late by dlopen; these few bytes fit in the static block, and the accesses become one instruction. */
#define FJ_THREAD_LOCAL __thread __attribute__((tls_model("initial-exec")))

/* ---- frames ---- */
#if FJ_V313
#define FRAME_CODE(f) ((PyCodeObject *)(f)->f_executable)
#define FRAME_SET_CODE(f, c) ((f)->f_executable = (PyObject *)(c))
#define FRAME_START(f, c) ((f)->instr_ptr = _PyCode_CODE(c))
#define FRAME_FUNC(f) ((f)->f_funcobj)
#elif FJ_V312
#define FRAME_CODE(f) ((f)->f_code)
#define FRAME_SET_CODE(f, c) ((f)->f_code = (PyCodeObject *)(c))
#define FRAME_START(f, c) ((f)->prev_instr = _PyCode_CODE(c) - 1)
#define FRAME_FUNC(f) ((f)->f_funcobj)
#else
#define FRAME_CODE(f) ((f)->f_code)
#define FRAME_SET_CODE(f, c) ((f)->f_code = (PyCodeObject *)(c))
#define FRAME_START(f, c) ((f)->prev_instr = _PyCode_CODE(c) - 1)
#define FRAME_FUNC(f) ((PyObject *)(f)->f_func)
#endif

#if FJ_V311
#define CODE_FRAME_SIZE(c) ((c)->co_nlocalsplus + (c)->co_stacksize + (int)FRAME_SPECIALS_SIZE)
#define CODE_GROW_FRAME(c, n) ((c)->co_stacksize += (n))
#define code_extra_index _PyEval_RequestCodeExtraIndex
#define code_extra_set _PyCode_SetExtra
#else
#define CODE_FRAME_SIZE(c) ((c)->co_framesize)
#define CODE_GROW_FRAME(c, n) ((c)->co_framesize += (n))
#define code_extra_index PyUnstable_Eval_RequestCodeExtraIndex
#define code_extra_set PyUnstable_Code_SetExtra
#endif

/* ---- dictionaries ---- */
/* A dictionary gets a fresh, globally unique number at each change. dict_version() may be compared with a number kept from earlier;
 * a number to keep comes from dict_version_to_keep(), which may decline with NO_VERSION. */
#define NO_VERSION UINT64_MAX
static inline uint64_t dict_version(PyObject *dict) { return ((PyDictObject *)dict)->ma_version_tag; }
#if FJ_V313
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
#else
static inline uint64_t dict_version_to_keep(PyObject *dict) { return dict_version(dict); }
#endif

/* For those dictionaries there is another short cut: the keys are those of the class, and the place of a key among them never changes. */
#if FJ_V313
static inline int dict_is_split(PyObject *dict) { return ((PyDictObject *)dict)->ma_values != NULL; }
static inline int split_dict_has_at(PyObject *dict, PyObject *key, Py_ssize_t place)
{
    PyDictKeysObject *keys = ((PyDictObject *)dict)->ma_keys;
    return (size_t)place < (size_t)keys->dk_nentries && DK_UNICODE_ENTRIES(keys)[place].me_key == key;
}
static inline PyObject *split_dict_value(PyObject *dict, Py_ssize_t place) { return ((PyDictObject *)dict)->ma_values->values[place]; }
static inline Py_ssize_t split_dict_size(PyObject *dict) { return ((PyDictObject *)dict)->ma_keys->dk_nentries; }
#else
static inline int dict_is_split(PyObject *dict) { (void)dict; return 0; }
static inline int split_dict_has_at(PyObject *dict, PyObject *key, Py_ssize_t place) { (void)dict; (void)key; (void)place; return 0; }
static inline PyObject *split_dict_value(PyObject *dict, Py_ssize_t place) { (void)dict; (void)place; return NULL; }
static inline Py_ssize_t split_dict_size(PyObject *dict) { (void)dict; return 0; }
#endif
/* Whether keys are only ever added to such a dictionary's keys while it is one. */
static inline int split_keys_are_fixed(PyObject *dict) { return FJ_V313 && dict_is_split(dict); }
int dict_watch_init(void) __attribute__((visibility("hidden")));

/* The instance dictionary if it already exists as a dictionary object, borrowed; NULL when it has to be made (or there is none). */
static inline PyObject *instance_dict_if_ready(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
#if FJ_V313
    if (type->tp_flags & Py_TPFLAGS_MANAGED_DICT)
        return (PyObject *)_PyObject_ManagedDictPointer(obj)->dict;
#elif FJ_V312
    if (type->tp_flags & Py_TPFLAGS_MANAGED_DICT) {
        PyDictOrValues slot = *_PyObject_DictOrValuesPointer(obj);
        return _PyDictOrValues_IsValues(slot) ? NULL : _PyDictOrValues_GetDict(slot);
    }
#else
    if (type->tp_flags & Py_TPFLAGS_MANAGED_DICT)
        return *_PyObject_ManagedDictPointer(obj);
#endif
    if (type->tp_dictoffset > 0)
        return *(PyObject **)((char *)obj + type->tp_dictoffset);
    return NULL;
}

/* Where an instance keeps its dictionary, or NULL; holds what instance_dict_if_ready() gave. */
static inline PyObject **instance_dict_slot(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
    if (type->tp_flags & Py_TPFLAGS_MANAGED_DICT)
#if FJ_V313
        return (PyObject **)&_PyObject_ManagedDictPointer(obj)->dict;
#elif FJ_V312
        return (PyObject **)_PyObject_DictOrValuesPointer(obj);
#else
        return _PyObject_ManagedDictPointer(obj);
#endif
    return type->tp_dictoffset > 0 ? (PyObject **)((char *)obj + type->tp_dictoffset) : NULL;
}

/* ---- attributes: without making an AttributeError where there is none ---- */
#if FJ_V313
#define optional_attribute PyObject_GetOptionalAttr
#else
#define optional_attribute _PyObject_LookupAttr
#endif

/* ---- exceptions: save and restore around code that must not disturb the one in flight ---- */
#if FJ_V311
typedef struct { PyObject *type, *value, *traceback; } SavedError;
static inline SavedError error_save(void) { SavedError e; PyErr_Fetch(&e.type, &e.value, &e.traceback); return e; }
static inline void error_restore(SavedError e) { PyErr_Restore(e.type, e.value, e.traceback); }
#else
typedef struct { PyObject *value; } SavedError;
static inline SavedError error_save(void) { return (SavedError){PyErr_GetRaisedException()}; }
static inline void error_restore(SavedError e) { PyErr_SetRaisedException(e.value); }
#endif

#endif
