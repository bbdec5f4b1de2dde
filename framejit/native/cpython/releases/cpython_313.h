/* The internals of CPython 3.13; see compat.h. */
#include "internal/pycore_frame.h"
#include "internal/pycore_object.h"
#include "internal/pycore_dict.h"

/* ---- frames ---- */
#define FRAME_CODE(f) ((PyCodeObject *)(f)->f_executable)
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
    return frame->stacktop == code->co_nlocalsplus && frame->instr_ptr == _PyCode_CODE(code);
}

static inline void frame_restart(_PyInterpreterFrame *frame, PyCodeObject *code)
{
    PyObject *original = frame->f_executable;
    for (int i = code->co_argcount; i < code->co_nlocalsplus; i++)
        frame->localsplus[i] = NULL;
    frame->stacktop = code->co_nlocalsplus;
    frame->f_executable = Py_NewRef((PyObject *)code);
    frame->instr_ptr = _PyCode_CODE(code);
    Py_DECREF(original);                  /* the function holds it too */
}

#include "cpython/releases/c_recursion_count.h"
#include "cpython/releases/frame_clear_and_pop.h"
#include "cpython/releases/inline_values.h"
