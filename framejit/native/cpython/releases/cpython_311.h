/* The internals of CPython 3.11; see compat.h. */
#include "internal/pycore_frame.h"
#include "internal/pycore_object.h"
#include "internal/pycore_dict.h"

/* ---- frames ---- */
#define FRAME_CODE(f) ((f)->f_code)
#define FRAME_FUNC(f) ((PyObject *)(f)->f_func)
#define CODE_FRAME_SIZE(c) ((c)->co_nlocalsplus + (c)->co_stacksize + (int)FRAME_SPECIALS_SIZE)
#define CODE_GROW_FRAME(c, n) ((c)->co_stacksize += (n))
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

/* The caller of an evaluation gets rid of the frame. */
static inline void frame_dispose(PyThreadState *ts, _PyInterpreterFrame *frame)
{
    (void)ts;
    (void)frame;
}

/* ---- how deep the C stack may go: no count is kept ---- */
static inline void c_recursion_give(PyThreadState *ts) { (void)ts; }
static inline void c_recursion_take(PyThreadState *ts) { (void)ts; }
static inline PyThreadState *counting_thread(void) { return NULL; }
static inline long c_recursion_left(PyThreadState *ts) { (void)ts; return 0; }
static inline int c_recursion_charge_is(long units) { (void)units; return 1; }
/* A call of a C function with one argument is charged against the depth of Python's calls. */
static inline void c_call_give(void) { PyThreadState_Get()->recursion_remaining++; }
static inline void c_call_take(void) { PyThreadState_Get()->recursion_remaining--; }

/* ---- the dictionary of an instance whose type manages it ---- */
static inline PyObject **managed_dict_slot(PyObject *obj) { return _PyObject_ManagedDictPointer(obj); }
static inline PyObject *managed_dict_if_ready(PyObject *obj) { return *managed_dict_slot(obj); }

/* ---- dictionaries have a number, unique in the process, that every change renews ---- */
#define FJ_DICT_NUMBERS 1
