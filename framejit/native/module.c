/* framejit._native: the module, and the switches that turn interception off. */
#include "native.h"
#include <time.h>
#include "torch/cuda_driver.h"
#include "cpython/dict_watch.h"
#include "cpython/cpython_layout.h"
#include "plan/plan.h"
#include "torch/process_state.h"
#include "guards/size_program.h"
#include "torch/torch_symbols.h"

int fj_disabled;
FJ_THREAD_LOCAL int fj_busy;

int64_t fj_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static PyObject *set_disabled(PyObject *module, PyObject *flag)
{
    (void)module;
    int truth = PyObject_IsTrue(flag);
    if (truth < 0)
        return NULL;
    fj_disabled = truth;
    Py_RETURN_NONE;
}

static PyObject *disabled(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyBool_FromLong(fj_disabled);
}

static PyObject *busy(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyBool_FromLong(fj_busy > 0);
}

static PyObject *enter_busy(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    fj_busy++;
    Py_RETURN_NONE;
}

static PyObject *leave_busy(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    if (fj_busy == 0) {
        PyErr_SetString(PyExc_RuntimeError, "leave_busy() without enter_busy()");
        return NULL;
    }
    fj_busy--;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"set_disabled", set_disabled, METH_O,
     "set_disabled(flag): when true every dispatcher runs its original function."},
    {"disabled", disabled, METH_NOARGS, "disabled() -> bool"},
    {"busy", busy, METH_NOARGS, "busy() -> bool: whether this thread is inside the compiler."},
    {"enter_busy", enter_busy, METH_NOARGS,
     "enter_busy(): nothing this thread calls is intercepted until leave_busy()."},
    {"leave_busy", leave_busy, METH_NOARGS, "leave_busy(): undo one enter_busy()."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "framejit._native",
    .m_doc = "The native core: dispatch, guards, tensor access, the frame hook and the plans of compiled graphs.",
    .m_size = -1,                         /* one interpreter: the hook and the per-code index are process-wide */
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__native(void)
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError,
            "framejit works in the main interpreter of a process only, not in a subinterpreter");
        return NULL;
    }
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
#ifdef Py_GIL_DISABLED
    PyUnstable_Module_SetGIL(module, Py_MOD_GIL_USED);  /* the interpreter enables its lock, and keeps it */
#endif
    if (cpython_layout_init(module) < 0 || dict_watch_init(module) < 0 || guard_tree_init(module) < 0
        || tensor_access_init(module) < 0 || tensor_owners_init(module) < 0 || autograd_nodes_init(module) < 0
        || thread_state_init(module) < 0 || process_state_init(module) < 0 || entry_cache_init(module) < 0 || entry_init(module) < 0
        || dispatcher_init(module) < 0 || code_record_init(module) < 0 || frame_hook_init(module) < 0
        || plan_init(module) < 0 || torch_symbols_init(module) < 0 || torch_warnings_init(module) < 0
        || cuda_driver_init(module) < 0 || lru_cache_init(module) < 0 || hash_table_init(module) < 0
        || type_slots_init(module) < 0 || selector_init(module) < 0 || size_switch_init(module) < 0 || size_program_init(module) < 0
        || guard_version_init(module) < 0 || processor_init(module) < 0 || fork_init(module) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
