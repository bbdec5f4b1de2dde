/* Building a plan from its description: checks it, and lays out all that the calls have in common. */
#include "plan/plan_builder.h"

struct PlanBlock { PlanBlock *next; int64_t memory[]; };

void plan_free_blocks(Plan *plan)
{
    while (plan->blocks) {
        PlanBlock *block = plan->blocks;
        plan->blocks = block->next;
        PyMem_Free(block);
    }
}

/* Zeroed memory that lives as long as the plan. */
void *plan_allocate(Plan *plan, Py_ssize_t count, size_t size)
{
    PlanBlock *block = PyMem_Calloc(1, sizeof(PlanBlock) + (size_t)count * size);
    if (block == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    block->next = plan->blocks;
    plan->blocks = block;
    return block->memory;
}

static int build_outputs(PlanBuilder *b, PyObject *outputs)
{
    Plan *plan = b->plan;
    plan->n_outputs = (int)PySequence_Fast_GET_SIZE(outputs);
    if ((plan->outputs = plan_allocate(plan, plan->n_outputs, sizeof(CallArg))) == NULL)
        return -1;
    for (int i = 0; i < plan->n_outputs; i++)
        if (plan_read_arg(b, PySequence_Fast_GET_ITEM(outputs, i), 1, &plan->outputs[i]) < 0)
            return -1;
    return 0;
}

/* 0 also where no input is written */
static int build_alone(PlanBuilder *b, PyObject *alone, PyObject *spans)
{
    Py_ssize_t n_spans;
    if (alone == NULL || spans == NULL)
        return 0;
    if ((b->plan->alone = plan_read_slots(b, alone, &b->plan->n_alone)) == NULL
        || (b->plan->spans = plan_read_integers(b->plan, spans, &n_spans)) == NULL)
        return -1;
    if (n_spans == b->plan->n_inputs)
        return 0;
    PyErr_Format(PyExc_ValueError, "%zd spans for %d inputs", n_spans, b->plan->n_inputs);
    return -1;
}

int plan_build(Plan *plan, PyObject *steps, PyObject *outputs, PyObject *aligned, PyObject *copied, PyObject *alone,
    PyObject *spans, PyObject *fixed)
{
    PlanBuilder b = {plan, PyMem_Calloc(2, plan->n_values + 1), NULL};
    PyObject *list = PySequence_Fast(steps, "steps are given as a list"),
        *values = PySequence_Fast(outputs, "outputs are given as a list");
    int status = b.live && list && values ? 0 : -1;
    if (b.live == NULL)
        PyErr_NoMemory();
    if (status == 0) {
        b.written = b.live + plan->n_values + 1;
        memset(b.live, 1, plan->n_inputs);
        memset(b.written, 1, plan->n_inputs);
        plan->steps = plan_allocate(plan, PySequence_Fast_GET_SIZE(list), sizeof(PlanStep));
        /* read first, when nothing but the inputs can be */
        if (plan->steps == NULL
            || (aligned && (plan->aligned = plan_read_slots(&b, aligned, &plan->n_aligned)) == NULL)
            || (copied && (plan->copied = plan_read_slots(&b, copied, &plan->n_copied)) == NULL)
            || build_alone(&b, alone, spans) < 0
            || (fixed && (plan->fixed = plan_read_places(&b, fixed, &plan->n_fixed)) == NULL))
            status = -1;
    }
    for (; status == 0 && plan->n_steps < PySequence_Fast_GET_SIZE(list); plan->n_steps += status == 0)
        status = plan_build_step(&b, PySequence_Fast_GET_ITEM(list, plan->n_steps), &plan->steps[plan->n_steps]);
    if (status == 0)
        status = build_outputs(&b, values);
    PyMem_Free(b.live);
    Py_XDECREF(list);
    Py_XDECREF(values);
    return status;
}
