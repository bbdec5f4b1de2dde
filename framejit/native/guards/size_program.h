/* What is computed from the sizes and strides of tensors: postfix code over 64-bit integers, for conditions of guards
 * and sizes in plans.
 *
 * A program is written as a tuple of ints, each opcode (S_* in Python) followed by its operands:
 *   SIZE tensor dim    STRIDE tensor dim    CONST value      push a number; `tensor` is a position among
 *                                                            the tensors that the program's user names
 *   ADD SUB MUL FLOORDIV MOD MIN MAX                         replace two numbers by one, as Python's integers do
 *   EQ NE LT LE AND OR                                       the same, 1 or 0; AND and OR have evaluated both sides
 *   NOT                                                      1 for zero, else 0
 * It leaves one number. */
#ifndef FRAMEJIT_SIZE_PROGRAM_H
#define FRAMEJIT_SIZE_PROGRAM_H
#include "native.h"

#define SIZE_OPERATIONS(X) \
    X(SIZE) X(STRIDE) X(CONST) X(ADD) X(MUL) X(FLOORDIV) X(MOD) X(MIN) X(MAX) X(EQ) X(LT) X(NOT)

typedef struct {
    const int64_t *sizes, *strides;       /* of ndim elements; strides: NULL if the layout has none */
    int64_t ndim;
} TensorDims;

typedef struct SizeProgram SizeProgram;

#pragma GCC visibility push(hidden)
/* NULL with TypeError, ValueError or MemoryError */
SizeProgram *size_program_new(PyObject *code, Py_ssize_t n_tensors);
void size_program_free(SizeProgram *program);
/* Gives 1, or 0 without a result: a dimension that a tensor lacks, a division by zero, a number that needs more than 64
 * bits. Needs no interpreter. */
int size_program_run(const SizeProgram *program, const TensorDims *tensors, int64_t *result);
int size_program_init(PyObject *module);
#pragma GCC visibility pop
#endif
