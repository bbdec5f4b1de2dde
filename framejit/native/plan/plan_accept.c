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

int plan_accept(const Plan *plan, PyObject *const *args)
{
    for (int i = 0; i < plan->n_inputs; i++)
        if (FJ_UNLIKELY(!PyObject_TypeCheck(args[i], fj_torch.tensor_type))) {
            PyErr_Format(PyExc_TypeError, "input %d of %R is a %s, not a tensor", i, plan, Py_TYPE(args[i])->tp_name);
            return -1;
        }
    for (int i = 0; i < plan->n_aligned; i++) {
        void *data;
        if (fj_shim.get_data_ptr(HANDLE(args[plan->aligned[i]]), &data) || (uintptr_t)data % 16)
            return 0;
    }
    for (int i = 0; i < plan->n_fixed; i++) {
        void *data;
        if (fj_shim.get_data_ptr(HANDLE(args[plan->fixed[i].slot]), &data) || data != plan->fixed[i].place)
            return 0;
    }
    return written_apart(plan, args);
}
