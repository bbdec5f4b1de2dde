/* The internals of CPython 3.14; see compat.h. */
#include "internal/pycore_interpframe.h"
#include "internal/pycore_object.h"
#include "internal/pycore_dict.h"
#include "internal/pycore_ceval.h"

/* ---- frames: a reference has tag bits, which say whether it is counted ---- */
#define FRAME_CODE(f) ((PyCodeObject *)PyStackRef_AsPyObjectBorrow((f)->f_executable))
#define FRAME_FUNC(f) PyStackRef_AsPyObjectBorrow((f)->f_funcobj)
#define CODE_FRAME_SIZE(c) ((c)->co_framesize)
#define CODE_GROW_FRAME(c, n) ((c)->co_framesize += (n))
enum { FRAME_ARGUMENTS_ARE_TAGGED = 1 };

static inline PyObject *const *frame_arguments(_PyInterpreterFrame *frame, int n, PyObject **scratch)
{
    for (int i = 0; i < n; i++)
        scratch[i] = PyStackRef_AsPyObjectBorrow(frame->localsplus[i]);
    return scratch;
}

/* Without the lock each thread has a copy of a code's bytecode, and a frame runs that of its thread. */
static inline _Py_CODEUNIT *frame_bytecode(_PyInterpreterFrame *frame, PyCodeObject *code)
{
#ifdef Py_GIL_DISABLED
    (void)code;
    return _PyFrame_GetBytecode(frame);
#else
    (void)frame;
    return _PyCode_CODE(code);
#endif
}

static inline int frame_is_fresh(_PyInterpreterFrame *frame, PyCodeObject *code)
{
    return frame->stackpointer == frame->localsplus + code->co_nlocalsplus
        && frame->instr_ptr == frame_bytecode(frame, code);
}

static inline void frame_restart(_PyInterpreterFrame *frame, PyCodeObject *code)
{
    _PyStackRef original = frame->f_executable;
    for (int i = code->co_argcount; i < code->co_nlocalsplus; i++)
        frame->localsplus[i] = PyStackRef_NULL;
    frame->stackpointer = frame->localsplus + code->co_nlocalsplus;
    frame->f_executable = PyStackRef_FromPyObjectNew(code);
#ifdef Py_GIL_DISABLED
    _PyFrame_InitializeTLBC(PyThreadState_Get(), frame, code);
#else
    frame->instr_ptr = _PyCode_CODE(code);
#endif
    PyStackRef_CLOSE(original);           /* the function holds it too */
}

/* ---- how deep the C stack may go: CPython itself looks at the stack, nearer to its end than we do ---- */
static inline void c_recursion_give(PyThreadState *ts) { (void)ts; }
static inline void c_recursion_take(PyThreadState *ts) { (void)ts; }
static inline PyThreadState *counting_thread(void) { return NULL; }
static inline long c_recursion_left(PyThreadState *ts) { (void)ts; return 0; }
static inline int c_recursion_charge_is(long units) { (void)units; return 1; }
static inline void c_call_give(void) {}
static inline void c_call_take(void) {}

#include "cpython/releases/frame_clear_and_pop.h"
#include "cpython/releases/inline_values.h"
