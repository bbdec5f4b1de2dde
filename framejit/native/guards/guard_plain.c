/* The guards that most calls consist of: the torch state, and arguments that are tensors and nothing else. They come
 * first in a tree, need no values kept and nothing held, and so are compared one after the other, before the walk over
 * the nodes behind them. */
#include "guards/guard_tree.h"
#include "torch/tensor_spec.h"

static const Check *only_check(const GuardTree *tree, const Node *node)
{
    return node->depth == 0 && node->n_checks == 1 ? &tree->checks[node->first_check] : NULL;
}

static int is_plain_arg(const Node *node, const Check *check)
{
    return node->accessor == A_ARG && node->index >= 0 && check->kind == C_TENSOR && !check->tensor->attributes_only;
}

static int is_state(const Node *node, const Check *check)
{
    return node->accessor == A_STATE && check->kind == C_STATE;
}

int guard_plain_collect(GuardTree *tree)
{
    tree->plain_args = PyMem_Calloc(tree->n_nodes + 1, sizeof(PlainArg));
    if (tree->plain_args == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < tree->n_nodes; i++) {
        const Node *node = &tree->nodes[i];
        const Check *check = only_check(tree, node);
        int is_leaf = i + 1 == tree->n_nodes || tree->nodes[i + 1].depth == 0;
        if (check == NULL || !is_leaf)
            break;
        if (is_plain_arg(node, check))
            tree->plain_args[tree->n_plain_args++] = (PlainArg){node->index, check->tensor};
        else if (is_state(node, check) && tree->plain_state == NULL)
            tree->plain_state = check->payload;
        else
            break;
        tree->n_plain_nodes = i + 1;
    }
    return 0;
}

int guard_plain_passes(const GuardTree *tree, PyObject *const *args, Py_ssize_t nargs)
{
    if (FJ_UNLIKELY(fj_tensor_access != ACCESS_DIRECT))
        return RESTART;
    for (const PlainArg *arg = tree->plain_args, *end = arg + tree->n_plain_args; arg < end; arg++) {
        if (FJ_UNLIKELY(arg->index >= nargs))
            return RESTART;
        PyObject *value = args[arg->index];
        if (FJ_UNLIKELY(value == NULL))
            return RESTART;
        if (FJ_UNLIKELY(!Py_IS_TYPE(value, arg->spec->type)))
            return FAIL;
        int found = match_direct(arg->spec, value);
        if (FJ_UNLIKELY(found != 1))
            return found == ASK_PYTHON ? RESTART : FAIL;
    }
    return tree->plain_state == NULL || state_matches(tree->plain_state) ? PASS : FAIL;
}
