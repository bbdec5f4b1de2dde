/* Size programs: see size_program.h. What is checked at construction is not checked when one runs. */
#include "guards/size_program.h"

enum { MOST_DEPTH = 64 };

#define AS_ENUM(name) S_##name,
enum { SIZE_OPERATIONS(AS_ENUM) S_COUNT };
#undef AS_ENUM

/* Where an operation finds a number. Only results go over the stack: what is read or constant is fetched where it is
 * used. */
enum { FROM_STACK, FROM_CONSTANT, FROM_SIZE, FROM_STRIDE };
typedef struct {
    int32_t from, tensor;
    int64_t number;                       /* the dimension, or the constant */
} Operand;

typedef struct {
    int operation;                        /* S_CONST: the left operand itself */
    Operand left, right;                  /* NOT has the left one only */
} Step;

struct SizeProgram {
    Py_ssize_t n;
    Step steps[];
};

/* ---- construction ---- */
static int read_int(PyObject *code, Py_ssize_t i, const char *what, int64_t *out)
{
    if (i >= PyTuple_GET_SIZE(code)) {
        PyErr_Format(PyExc_ValueError, "a size program ends where %s is expected", what);
        return -1;
    }
    PyObject *item = PyTuple_GET_ITEM(code, i);
    if (!PyLong_CheckExact(item)) {
        PyErr_Format(PyExc_TypeError, "a size program consists of ints, but item %zd is of type %.100s", i,
            Py_TYPE(item)->tp_name);
        return -1;
    }
    int overflow;
    *out = PyLong_AsLongLongAndOverflow(item, &overflow);
    if (overflow) {
        PyErr_Format(PyExc_ValueError, "item %zd of a size program needs more than 64 bits", i);
        return -1;
    }
    return 0;
}

/* Reads the operands of the operation, a read or a constant, before item *i, and moves *i behind them. */
static int read_operand(PyObject *code, int64_t operation, Py_ssize_t *i, Py_ssize_t n_tensors, Operand *out)
{
    int64_t tensor, dim;
    if (operation == S_CONST) {
        *out = (Operand){.from = FROM_CONSTANT};
        return read_int(code, (*i)++, "a constant", &out->number);
    }
    if (read_int(code, (*i)++, "the position of a tensor", &tensor) < 0
        || read_int(code, (*i)++, "a dimension", &dim) < 0)
        return -1;
    if (tensor < 0 || tensor >= n_tensors) {
        PyErr_Format(PyExc_ValueError, "a size program reads tensor %lld of %zd", (long long)tensor, n_tensors);
        return -1;
    }
    if (dim < 0) {
        PyErr_Format(PyExc_ValueError, "a size program reads dimension %lld", (long long)dim);
        return -1;
    }
    *out = (Operand){operation == S_SIZE ? FROM_SIZE : FROM_STRIDE, (int32_t)tensor, dim};
    return 0;
}

static int compile(SizeProgram *program, PyObject *code, Py_ssize_t n_tensors)
{
    Operand stack[MOST_DEPTH];
    int depth = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code);) {
        Py_ssize_t start = i;
        int64_t operation;
        if (read_int(code, i++, "an operation", &operation) < 0)
            return -1;
        if (operation < 0 || operation >= S_COUNT) {
            PyErr_Format(PyExc_ValueError, "unknown operation %lld at item %zd of a size program", (long long)operation,
                start);
            return -1;
        }
        int n_operands = operation <= S_CONST ? 0 : operation == S_NOT ? 1 : 2;
        if (depth < n_operands) {
            PyErr_Format(PyExc_ValueError,
                "the operation at item %zd of a size program needs %d operands, and there are %d", start, n_operands,
                depth);
            return -1;
        }
        if (depth - n_operands == MOST_DEPTH) {
            PyErr_Format(PyExc_ValueError, "a size program holds more than %d numbers at a time", MOST_DEPTH);
            return -1;
        }
        depth -= n_operands;
        if (n_operands == 0) {
            if (read_operand(code, operation, &i, n_tensors, &stack[depth]) < 0)
                return -1;
        }
        else {
            program->steps[program->n++] = (Step){(int)operation, stack[depth],
                n_operands == 2 ? stack[depth + 1] : (Operand){FROM_CONSTANT, 0, 0}};
            stack[depth] = (Operand){.from = FROM_STACK};
        }
        depth++;
    }
    if (depth != 1) {
        PyErr_Format(PyExc_ValueError, "a size program leaves one number, this one leaves %d", depth);
        return -1;
    }
    if (stack->from != FROM_STACK)
        program->steps[program->n++] = (Step){S_CONST, *stack, {FROM_CONSTANT, 0, 0}};
    return 0;
}

SizeProgram *size_program_new(PyObject *code, Py_ssize_t n_tensors)
{
    if (!PyTuple_Check(code)) {
        PyErr_Format(PyExc_TypeError, "a size program is a tuple of ints, not %.100s", Py_TYPE(code)->tp_name);
        return NULL;
    }
    if (n_tensors > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a size program of so many tensors cannot be made");
        return NULL;
    }
    SizeProgram *program = PyMem_Calloc(1, sizeof(SizeProgram) + PyTuple_GET_SIZE(code) * sizeof(Step));
    if (program == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if (compile(program, code, n_tensors) < 0) {
        PyMem_Free(program);
        return NULL;
    }
    return program;
}

void size_program_free(SizeProgram *program) { PyMem_Free(program); }

/* ---- running ---- */
static inline int64_t floor_quotient(int64_t a, int64_t b)
{
    int64_t quotient = a / b;
    return quotient - ((a % b != 0) & ((a < 0) != (b < 0)));
}

static inline int64_t floor_remainder(int64_t a, int64_t b)
{
    int64_t remainder = b == -1 ? 0 : a % b;       /* the machine's division of the least number by -1 traps */
    return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

/* Gives 0 if the tensor has no such dimension. */
static inline int fetch(const Operand *operand, const TensorDims *tensors, int64_t **top, int64_t *out)
{
    if (operand->from == FROM_STACK)
        *out = *--*top;
    else if (operand->from == FROM_CONSTANT)
        *out = operand->number;
    else {
        const TensorDims *tensor = &tensors[operand->tensor];
        const int64_t *dims = operand->from == FROM_SIZE ? tensor->sizes : tensor->strides;
        if (FJ_UNLIKELY(operand->number >= tensor->ndim || dims == NULL))
            return 0;
        *out = dims[operand->number];
    }
    return 1;
}

int size_program_run(const SizeProgram *program, const TensorDims *tensors, int64_t *result)
{
    int64_t stack[MOST_DEPTH], *top = stack, a, b;          /* top: the first free place */
    for (const Step *step = program->steps, *end = step + program->n; step < end; step++) {
        if (FJ_UNLIKELY(!fetch(&step->right, tensors, &top, &b) || !fetch(&step->left, tensors, &top, &a)))
            return 0;
        switch (step->operation) {
        case S_ADD:
            if (FJ_UNLIKELY(__builtin_add_overflow(a, b, &a)))
                return 0;
            break;
        case S_MUL:
            if (FJ_UNLIKELY(__builtin_mul_overflow(a, b, &a)))
                return 0;
            break;
        case S_FLOORDIV:
            if (FJ_UNLIKELY(b == 0 || (a == INT64_MIN && b == -1)))
                return 0;
            a = floor_quotient(a, b);
            break;
        case S_MOD:
            if (FJ_UNLIKELY(b == 0))
                return 0;
            a = floor_remainder(a, b);
            break;
        case S_MIN: a = a < b ? a : b; break;
        case S_MAX: a = a > b ? a : b; break;
        case S_EQ: a = a == b; break;
        case S_LT: a = a < b; break;
        case S_NOT: a = !a; break;
        case S_CONST: break;
        default: Py_UNREACHABLE();
        }
        *top++ = a;
    }
    *result = *stack;
    return 1;
}

int size_program_init(PyObject *module)
{
#define ADD_CONSTANT(name) if (PyModule_AddIntConstant(module, "S_" #name, S_##name) < 0) return -1;
    SIZE_OPERATIONS(ADD_CONSTANT)
#undef ADD_CONSTANT
    return 0;
}
