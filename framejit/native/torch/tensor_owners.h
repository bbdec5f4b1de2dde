/* Whether anybody else holds a tensor or its memory. */
#ifndef FRAMEJIT_TENSOR_OWNERS_H
#define FRAMEJIT_TENSOR_OWNERS_H
#include "native.h"

#pragma GCC visibility push(hidden)

/* Whether nothing of torch's refers to the tensor, or to its memory, but this Python object. 0 where that is not known.
 * Never raises. */
int tensor_is_held_once(PyObject *tensor);

#pragma GCC visibility pop
#endif
