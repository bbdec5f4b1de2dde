/* Whether a plan can run with the inputs of a call. What it was built for is guarded before, but for where the inputs
 * lie in memory. */
#include "plan/plan.h"
#include "torch/tensor_spec.h"

static int share_memory(const char *a, int64_t a_bytes, const char *b, int64_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

/* An input that is written must not be read through another one: kernels load what is there before they store. */
static int written_apart(const Plan *plan, PyObject *const *args)
{
    for (int i = 0; i < plan->n_alone; i++) {
        int written = plan->alone[i];
        void *mine, *other;
        if (fj_shim.get_data_ptr(HANDLE(args[written]), &mine))
            return 0;
        for (int j = 0; j < plan->n_inputs; j++)
            if (j != written
                && (fj_shim.get_data_ptr(HANDLE(args[j]), &other)
                || share_memory(mine, plan->spans[written], other, plan->spans[j])))
                return 0;
    }
    return 1;
}

/* 1: it is, 0: it is not or can't be said */
static int is_aligned(PyObject *tensor)
{
    void *data;
    return !fj_shim.get_data_ptr(HANDLE(tensor), &data) && (uintptr_t)data % 16 == 0;
}

int plan_accept(const Plan *plan, PyObject *const *args)
{
    for (int i = 0; i < plan->n_inputs; i++)
        if (FJ_UNLIKELY(!PyObject_TypeCheck(args[i], fj_torch.tensor_type))) {
            PyErr_Format(PyExc_TypeError, "input %d of %R is a %s, not a tensor", i, plan, Py_TYPE(args[i])->tp_name);
            return -1;
        }
    for (int i = 0; i < plan->n_aligned; i++)
        if (FJ_UNLIKELY(!is_aligned(args[plan->aligned[i]])))
            return plan->n_copied ? PLAN_UNALIGNED : 0;
    for (int i = 0; i < plan->n_fixed; i++) {
        void *data;
        if (fj_shim.get_data_ptr(HANDLE(args[plan->fixed[i].slot]), &data) || data != plan->fixed[i].place)
            return 0;
    }
    return written_apart(plan, args);
}

static int may_be_copied(const Plan *plan, int slot)
{
    for (int i = 0; i < plan->n_copied; i++)
        if (plan->copied[i] == slot)
            return 1;
    return 0;
}

PyObject *plan_aligned_inputs(const Plan *plan, PyObject *const *args)
{
    PyObject *list = PyList_New(plan->n_inputs);
    for (int i = 0; list && i < plan->n_inputs; i++)
        PyList_SET_ITEM(list, i, Py_NewRef(args[i]));
    for (int i = 0; list && i < plan->n_aligned; i++) {
        int slot = plan->aligned[i];
        if (is_aligned(args[slot]))
            continue;
        PyObject *copy = may_be_copied(plan, slot) ? PyObject_CallOneArg(plan->aligned_copy, args[slot]) : NULL;
        if (copy == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, slot, copy);
    }
    return list;
}
