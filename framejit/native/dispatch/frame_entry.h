/* Starting other code in a frame that was pushed and not yet started, and getting rid of such a frame. */
#ifndef FRAMEJIT_FRAME_ENTRY_H
#define FRAMEJIT_FRAME_ENTRY_H
#include "cpython/compat.h"

static inline PyObject *give_up(PyThreadState *ts, _PyInterpreterFrame *frame)
{
    frame_dispose(ts, frame);
    return NULL;
}

static inline int point_frame_at(PyThreadState *ts, _PyInterpreterFrame *frame, PyCodeObject *code)
{
    /* the frame was pushed last, so it may grow as long as its chunk of the stack has room */
    PyObject **end = (PyObject **)frame + CODE_FRAME_SIZE(code);
    if (end >= ts->datastack_limit)
        return 0;
    ts->datastack_top = end;
    frame_restart(frame, code);
    return 1;
}
#endif
