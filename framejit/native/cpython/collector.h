/* The garbage collector rests while a library is imported. */
#ifndef FRAMEJIT_COLLECTOR_H
#define FRAMEJIT_COLLECTOR_H
#include "native.h"

/* What collector_resume is to be given; NULL if it rests already, or can't be asked. Sets no exception. */
PyObject *collector_rest(void);
/* Takes over the reference. An exception that is set stays. */
void collector_resume(PyObject *before);

#endif
