/* What the parts of the building of a plan share; see plan_build.c. Where an answer is an int, -1 means an
 * exception. */
#ifndef FRAMEJIT_PLAN_BUILDER_H
#define FRAMEJIT_PLAN_BUILDER_H
#include "plan/plan.h"

/* What is known while a plan is being read. A slot is written once and read only between that and its "free": then a
 * running plan needs no checks. */
typedef struct {
    Plan *plan;
    char *live;                           /* one flag a slot */
    char *written;
} PlanBuilder;

#pragma GCC visibility push(hidden)
/* plan_build.c */
void *plan_allocate(Plan *plan, Py_ssize_t count, size_t size);
/* plan_read.c */
int plan_read_slot(PlanBuilder *b, PyObject *number, int *slot);
int plan_write_slot(PlanBuilder *b, PyObject *number, int *slot);
int64_t *plan_read_integers(Plan *plan, PyObject *numbers, Py_ssize_t *count);
int *plan_read_slots(PlanBuilder *b, PyObject *numbers, int *count);
int plan_read_shape(Plan *plan, PyObject *sizes, PyObject *strides, Shape *shape);
/* containers are looked into at depth 0 only */
int plan_read_arg(PlanBuilder *b, PyObject *value, int depth, CallArg *arg);
/* pairs or triples of a slot, an address and, where there are any, bytes */
GraphCopy *plan_read_places(PlanBuilder *b, PyObject *places, int *count);
/* plan_steps.c */
/* an argument of a kernel that is no address of a value */
int plan_read_constant(const char *kind, PyObject *number, CudaArg *arg);
/* plan_graph.c */
int plan_build_graph(PlanBuilder *b, PyObject *parts, GraphStep *step);
/* plan_steps.c */
int plan_build_step(PlanBuilder *b, PyObject *description, PlanStep *step);
#pragma GCC visibility pop
#endif
