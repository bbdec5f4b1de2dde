/* Spans are pairs of CUDA events. Nothing here raises: a device that cannot be timed is a case that the caller has an
 * answer to. */
#include "torch/device_timer.h"
#include "torch/cuda_driver.h"
#include "torch/torch_shim.h"

int span_begin(DeviceSpan *span, int device_index)
{
    int capturing = 0, status = DEVICE_UNTIMED;
    void *before;
    *span = (DeviceSpan){0};
    if (cuda_context(device_index, &span->context) < 0) {
        PyErr_Clear();
        return DEVICE_UNTIMED;
    }
    if (torch_current_cuda_stream(device_index, &span->stream) < 0 || cuda_enter(span->context, &before))
        return DEVICE_UNTIMED;
    if (fj_cuda.stream_is_capturing(span->stream, &capturing))
        status = DEVICE_UNTIMED;
    else if (capturing)
        status = DEVICE_CAPTURING;
    else if (fj_cuda.event_create(&span->start, 0) == CUDA_DONE && fj_cuda.event_create(&span->end, 0) == CUDA_DONE
             && fj_cuda.event_record(span->start, span->stream) == CUDA_DONE)
        status = DEVICE_TIMED;
    cuda_leave(span->context, before);
    if (status != DEVICE_TIMED)
        span_free(span);
    return status;
}

void span_end(DeviceSpan *span)
{
    void *before;
    if (span->start == NULL)
        return;
    if (cuda_enter(span->context, &before)) {
        span_free(span);
        return;
    }
    int error = fj_cuda.event_record(span->end, span->stream);
    cuda_leave(span->context, before);
    if (error)
        span_free(span);
}

int span_length(const DeviceSpan *span, int64_t *nanoseconds)
{
    float milliseconds;
    if (span->start == NULL)
        return -1;
    int state = fj_cuda.event_query(span->end);
    if (state != CUDA_DONE)
        return state == CUDA_NOT_READY ? 0 : -1;
    if (fj_cuda.event_elapsed(&milliseconds, span->start, span->end))
        return -1;
    *nanoseconds = (int64_t)(milliseconds * 1e6);
    return 1;
}

void span_free(DeviceSpan *span)
{
    if (span->start)
        fj_cuda.event_destroy(span->start);
    if (span->end)
        fj_cuda.event_destroy(span->end);
    *span = (DeviceSpan){0};
}
