/* Getting rid of a frame that was pushed and never started. 3.11 leaves that to the caller; later releases expect it of the callee. */
#ifndef FRAMEJIT_FRAME_DISPOSAL_H
#define FRAMEJIT_FRAME_DISPOSAL_H
#include "compat.h"

#if FJ_V311
static inline void frame_dispose(PyThreadState *ts, _PyInterpreterFrame *frame)
{
    (void)ts;
    (void)frame;
}
#elif FJ_V313
extern void _PyEval_FrameClearAndPop(PyThreadState *, _PyInterpreterFrame *);
static inline void frame_dispose(PyThreadState *ts, _PyInterpreterFrame *frame)
{
    SavedError error = error_save();
    _PyEval_FrameClearAndPop(ts, frame);
    error_restore(error);
}
#else
/* 3.12 exports nothing for it. A frame that never started has no frame object and no value on its stack. */
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
#endif
#endif
