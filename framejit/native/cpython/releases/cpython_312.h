/* The internals of CPython 3.12; see compat.h. */
#include "internal/pycore_frame.h"
#include "internal/pycore_object.h"
#include "internal/pycore_dict.h"

/* ---- frames ---- */
#define FRAME_CODE(f) ((f)->f_code)
#define FRAME_FUNC(f) ((f)->f_funcobj)
#define CODE_FRAME_SIZE(c) ((c)->co_framesize)
#define CODE_GROW_FRAME(c, n) ((c)->co_framesize += (n))
enum { FRAME_ARGUMENTS_ARE_TAGGED = 0 };

static inline PyObject *const *frame_arguments(_PyInterpreterFrame *frame, int n, PyObject **scratch)
{
    (void)n;
    (void)scratch;
    return frame->localsplus;
}

static inline int frame_is_fresh(_PyInterpreterFrame *frame, PyCodeObject *code)
{
    return frame->stacktop == code->co_nlocalsplus && frame->prev_instr == _PyCode_CODE(code) - 1;
}

static inline void frame_restart(_PyInterpreterFrame *frame, PyCodeObject *code)
{
    PyCodeObject *original = frame->f_code;
    for (int i = code->co_argcount; i < code->co_nlocalsplus; i++)
        frame->localsplus[i] = NULL;
    frame->stacktop = code->co_nlocalsplus;
    frame->f_code = (PyCodeObject *)Py_NewRef((PyObject *)code);
    frame->prev_instr = _PyCode_CODE(code) - 1;
    Py_DECREF(original);                  /* the function holds it too */
}

/* Nothing is exported for it. A frame that never started has no frame object and no value on its stack. */
static inline void frame_dispose(PyThreadState *ts, _PyInterpreterFrame *frame)
{
    SavedError error = error_save();
    for (int i = 0; i < frame->stacktop; i++)
        Py_XDECREF(frame->localsplus[i]);
    Py_XDECREF(frame->f_locals);
    Py_DECREF(frame->f_funcobj);
    Py_DECREF(frame->f_code);
    PyObject **base = (PyObject **)frame;
    _PyStackChunk *chunk = ts->datastack_chunk;
    if (base == &chunk->data[0]) {        /* the first frame of its chunk takes the chunk with it */
        _PyStackChunk *previous = chunk->previous;
        PyObjectArenaAllocator arena;
        ts->datastack_chunk = previous;
        ts->datastack_top = &previous->data[previous->top];
        ts->datastack_limit = (PyObject **)((char *)previous + previous->size);
        PyObject_GetArenaAllocator(&arena);
        arena.free(arena.ctx, chunk, chunk->size);
    }
    else
        ts->datastack_top = base;
    error_restore(error);
}

#include "cpython/releases/c_recursion_count.h"

/* ---- the dictionary of an instance whose type manages it ---- */
static inline PyObject **managed_dict_slot(PyObject *obj) { return (PyObject **)_PyObject_DictOrValuesPointer(obj); }
static inline PyObject *managed_dict_if_ready(PyObject *obj)
{
    PyDictOrValues slot = *_PyObject_DictOrValuesPointer(obj);
    return _PyDictOrValues_IsValues(slot) ? NULL : _PyDictOrValues_GetDict(slot);
}
