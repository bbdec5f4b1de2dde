/* How long the device takes for what is queued between two moments, without ever waiting for it. */
#ifndef FRAMEJIT_DEVICE_TIMER_H
#define FRAMEJIT_DEVICE_TIMER_H
#include "native.h"

#pragma GCC visibility push(hidden)

typedef struct {
    void *start, *end, *stream, *context;          /* start is NULL while the span is unused */
} DeviceSpan;

enum { DEVICE_TIMED, DEVICE_UNTIMED, DEVICE_CAPTURING };
/* Opens a span on torch's current stream. UNTIMED: this device cannot be timed. CAPTURING: nothing may be measured, the
 * stream is being captured. */
int span_begin(DeviceSpan *span, int device_index);
void span_end(DeviceSpan *span);
/* 1: *nanoseconds is the span's length; 0: the device is not that far yet; -1: it will never be known */
int span_length(const DeviceSpan *span, int64_t *nanoseconds);
void span_free(DeviceSpan *span);

#pragma GCC visibility pop
#endif
