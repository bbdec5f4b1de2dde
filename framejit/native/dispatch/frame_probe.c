/* Whether frames are laid out as we read and write them, tried on frames of a function made for it: what they hold is
 * known. The first call only looks; the second runs other code in its frame, and the third gets rid of its frame, if
 * the first found everything in its place. */
#include "dispatch/frame_entry.h"
#include "cpython/cpython_layout.h"
#include "native.h"

enum { N_ARGS = 2 };
typedef enum { PROBE_LOOK, PROBE_REPLACE, PROBE_DISPOSE, PROBE_DONE } ProbeStep;

static struct {
    ProbeStep step;
    PyObject *fn, *args[N_ARGS];
    PyCodeObject *replacement;
    _PyFrameEvalFunction before;
    long units;                           /* what the evaluation that led here was charged */
    int holds;
} probe;

static int frame_holds(PyThreadState *ts, _PyInterpreterFrame *frame)
{
    PyFunctionObject *fn = (PyFunctionObject *)probe.fn;
    PyCodeObject *code = (PyCodeObject *)fn->func_code;
    PyObject *room[N_ARGS + 1];
    if (FRAME_CODE(frame) != code || FRAME_FUNC(frame) != probe.fn || frame->f_globals != fn->func_globals
        || frame->f_builtins != fn->func_builtins || frame->f_locals != NULL || frame->frame_obj != NULL
        || frame->owner != FRAME_OWNED_BY_THREAD || !frame_is_fresh(frame, code))
        return 0;
    if (ts->datastack_top != (PyObject **)frame + CODE_FRAME_SIZE(code) || ts->datastack_limit < ts->datastack_top)
        return 0;
    PyObject *const *args = frame_arguments(frame, N_ARGS, room);
    return args[0] == probe.args[0] && args[1] == probe.args[1];
}

static PyObject *probe_hook(PyThreadState *ts, _PyInterpreterFrame *frame, int throwflag)
{
    ProbeStep step = probe.step;
    probe.step = PROBE_DONE;
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), probe.before);
    if (step == PROBE_LOOK) {
        probe.units -= c_recursion_left(ts);
        probe.holds = frame_holds(ts, frame);
    }
    else if (step == PROBE_REPLACE)
        probe.holds = point_frame_at(ts, frame, probe.replacement);
    else if (step == PROBE_DISPOSE) {
        PyErr_SetNone(PyExc_StopIteration);
        return give_up(ts, frame);
    }
    return _PyEval_EvalFrameDefault(ts, frame, throwflag);
}

static PyObject *call_probed(ProbeStep step)
{
    PyInterpreterState *interp = PyInterpreterState_Get();
    probe.step = step;
    probe.before = _PyInterpreterState_GetEvalFrameFunc(interp);
    probe.units = c_recursion_left(PyThreadState_Get());
    _PyInterpreterState_SetEvalFrameFunc(interp, probe_hook);
    PyObject *result = PyObject_Vectorcall(probe.fn, probe.args, N_ARGS, NULL);
    if (probe.step != PROBE_DONE)         /* the call came here without the hook */
        _PyInterpreterState_SetEvalFrameFunc(interp, probe.before);
    return result;
}

/* The probing function gives its second argument, the replacement the first. */
static int probe_frames(void)
{
    PyThreadState *ts = PyThreadState_Get();
    probe.holds = 0;
    PyObject *result = call_probed(PROBE_LOOK);
    int as_before = result == probe.args[1];
    Py_XDECREF(result);
    if (!probe.holds || !as_before || !c_recursion_charge_is(probe.units))
        return 0;
    PyObject **top = ts->datastack_top;
    result = call_probed(PROBE_REPLACE);
    int replaced = probe.holds && result == probe.args[0] && ts->datastack_top == top;
    Py_XDECREF(result);
    if (!replaced)
        return 0;
    Py_ssize_t counts[N_ARGS] = {Py_REFCNT(probe.args[0]), Py_REFCNT(probe.args[1])};
    result = call_probed(PROBE_DISPOSE);
    int disposed = result == NULL && PyErr_ExceptionMatches(PyExc_StopIteration) && ts->datastack_top == top
        && Py_REFCNT(probe.args[0]) == counts[0] && Py_REFCNT(probe.args[1]) == counts[1];
    Py_XDECREF(result);
    return disposed;
}

int frame_layout_holds(PyObject *fn, PyObject *replacement)
{
    PyCodeObject *code = (PyCodeObject *)((PyFunctionObject *)fn)->func_code, *other = (PyCodeObject *)replacement;
    if (code->co_argcount != N_ARGS || other->co_argcount != N_ARGS || code->co_nfreevars || other->co_nfreevars) {
        PyErr_SetString(PyExc_ValueError, "frames are probed with functions of two arguments and no free variable");
        return -1;
    }
    probe.fn = fn;
    probe.replacement = other;
    probe.args[0] = PyList_New(0);
    probe.args[1] = PyList_New(0);
    int holds = probe.args[0] && probe.args[1] && probe_frames();
    Py_CLEAR(probe.args[0]);
    Py_CLEAR(probe.args[1]);
    PyErr_Clear();
    return holds;
}
