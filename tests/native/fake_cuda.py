"""A CUDA driver and the CUDA half of torch, made up for tests on machines that have neither."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest
import torch

import forked

# One kernel, `affine(float *out, const float *in, i32 n, f32 a, i64 b, f64 c, void *null)`, that runs when it is
# launched; and a clock that the test moves on.
DRIVER = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
static __thread void *current;
static int context, module;
int fake_contexts_set, fake_loads, fake_unloads, fake_shared_limit = -1;
struct { unsigned grid[3], block[3], shared; void *stream, *context; } fake_launch;
struct node { int last; void (*host)(void); uint64_t cells[7]; } nodes[4096];
int fake_recording, fake_first, n_nodes;
long fake_stream = 0x1000;
void *fake_current(void) { return current; }
int cuInit(unsigned flags) { return 0; }
int cuGetErrorName(int error, const char **name)
{
    *name = error == 701 ? "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" : "CUDA_ERROR_OTHER";
    return 0;
}
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal > 1 ? 101 : 0; }
int cuDevicePrimaryCtxRetain(void **made, int device) { *made = (char *)&context + device; return 0; }
int cuCtxGetCurrent(void **context) { *context = current; return 0; }
int cuCtxSetCurrent(void *context) { current = context; fake_contexts_set++; return 0; }
int cuModuleLoadData(void **made, const void *image)
{
    fake_loads++;
    *made = &module;
    return strcmp(image, "image") ? 200 : current ? 0 : 201;
}
int cuModuleUnload(void *module) { fake_unloads++; return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name)
{
    *function = (void *)7;
    return strcmp(name, "affine") ? 500 : 0;
}
int cuFuncSetAttribute(void *function, int attribute, int value)
{
    fake_shared_limit = value;
    return attribute == 8 ? value > 232448 : 1;
}
int cuFuncGetAttribute(int *value, int attribute, void *function)
{
    *value = attribute == 4 ? 42 : attribute == 3 ? 16 : -1;
    return 0;
}
int cuFuncGetName(const char **name, void *function) { *name = "affine"; return 0; }
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **args, void **extra)
{
    if (gx == 13 || function != (void *)7 || extra)
        return 701;
    fake_launch.grid[0] = gx, fake_launch.grid[1] = gy, fake_launch.grid[2] = gz;
    fake_launch.block[0] = bx, fake_launch.block[1] = by, fake_launch.block[2] = bz;
    fake_launch.shared = shared, fake_launch.stream = stream, fake_launch.context = current;
    if (fake_recording) {
        struct node *node = &nodes[n_nodes++];
        node->host = 0;
        for (int i = 0; i < 7; i++)
            memcpy(&node->cells[i], args[i], i == 2 || i == 3 ? 4 : 8);
        return 0;
    }
    float *out = *(float **)args[0], *in = *(float **)args[1];
    for (int i = 0; i < *(int32_t *)args[2]; i++)
        out[i] = *(float *)args[3] * in[i] + *(int64_t *)args[4] + *(double *)args[5];
    return *(void **)args[6] ? 1 : 0;
}
int fake_overlapping;
int cuLaunchKernelEx(const struct { unsigned grid[3], block[3], shared; void *stream;
    const struct { int id; char padding[4]; int value; char rest[60]; } *attributes; unsigned n; } *config,
    void *function, void **args, void **extra)
{
    fake_overlapping += config->n == 1 && config->attributes->id == 6 && config->attributes->value == 1;
    return cuLaunchKernel(function, config->grid[0], config->grid[1], config->grid[2], config->block[0],
                          config->block[1], config->block[2], config->shared, config->stream, args, extra);
}
/* what is launched while capturing is a graph: a range of nodes */
int fake_capture_error, fake_instantiate_error, fake_graphs, fake_executables;
int cuStreamCreate(void **stream, unsigned flags) { *stream = (void *)0x9000; return current ? flags != 1 : 201; }
int cuStreamBeginCapture_v2(void *stream, int mode)
{
    if (fake_recording || mode != 1 || !stream || !current)
        return 400;
    fake_recording = 1, fake_first = n_nodes;
    return 0;
}
int cuStreamEndCapture(void *stream, void **graph)
{
    if (!fake_recording)
        return 401;
    fake_recording = 0, nodes[n_nodes++].last = 1;
    *graph = fake_capture_error ? 0 : &nodes[fake_first];
    fake_graphs += !fake_capture_error;
    return fake_capture_error;
}
int cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags)
{
    *executable = graph;
    fake_executables += !fake_instantiate_error;
    return fake_instantiate_error;
}
int cuGraphDestroy(void *graph) { fake_graphs--; return 0; }
int cuGraphExecDestroy(void *executable) { fake_executables--; return 0; }
void fake_host(void (*host)(void)) { nodes[n_nodes++].host = host; }
int cuGraphLaunch(struct node *node, void *stream)
{
    for (; !node->last; node++) {
        if (node->host)
            node->host();
        else {
            void *args[7];
            for (int i = 0; i < 7; i++)
                args[i] = &node->cells[i];
            cuLaunchKernel((void *)7, 1, 1, 1, 1, 1, 1, 0, stream, args, 0);
        }
    }
    return 0;
}
int cuStreamGetCaptureInfo_v3(void *stream, int *status, uint64_t *id, void **graph, void ***last, const void **edges,
                              size_t *n)
{
    static void *node;
    node = &nodes[n_nodes - 1];
    *status = fake_recording, *last = &node, *n = n_nodes > fake_first;
    return 0;
}
int fake_sets, fake_set_error, fake_copies, fake_waits, fake_synchronised;
int cuGraphExecKernelNodeSetParams_v2(void *executable, struct node *node, const struct {
    void *function; unsigned size[7]; void **args; } *params)
{
    fake_sets++;
    for (int i = 0; i < 7; i++)
        memcpy(&node->cells[i], params->args[i], i == 2 || i == 3 ? 4 : 8);
    return params->function == (void *)7 && params->size[3] == 128 ? fake_set_error : 400;
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
    fake_copies++;
    memcpy((void *)to, (void *)from, bytes);
    return 0;
}
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) { fake_waits++; return 0; }
int cuCtxSynchronize(void) { fake_synchronised++; return 0; }
int fake_milliseconds, fake_busy, fake_capturing, fake_events, fake_queries, fake_elapsed_error;
int cuStreamIsCapturing(void *stream, int *status) { *status = fake_capturing; return 0; }
int cuEventCreate(void **event, unsigned flags)
{
    fake_events++;
    *event = malloc(sizeof(int));
    return current ? 0 : 201;
}
int cuEventDestroy_v2(void *event) { fake_events--; free(event); return 0; }
int cuEventRecord(void *event, void *stream)
{
    *(int *)event = fake_milliseconds;
    return stream == (void *)fake_stream ? 0 : 400;
}
int cuEventQuery(void *event) { fake_queries++; return fake_busy ? 600 : 0; }
int cuEventElapsedTime(float *milliseconds, void *start, void *end)
{
    *milliseconds = *(int *)end - *(int *)start;
    return fake_elapsed_error;
}
"""
TORCH_CUDA = (
    "extern long fake_stream; int aoti_torch_get_current_cuda_stream(int device, void **stream) "
    "{ *stream = (void *)(fake_stream + device); return 0; }"
)
PREAMBLE = """
import ctypes, sys, threading
import pytest, torch
from framejit import _native as native
from framejit.guards import tensor_layout
fake = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
ctypes.CDLL(sys.argv[2], ctypes.RTLD_GLOBAL)
fake.fake_current.restype = ctypes.c_void_p
fake.cuCtxSetCurrent.argtypes = [ctypes.c_void_p]

class Launch(ctypes.Structure):
    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
                ("stream", ctypes.c_void_p), ("context", ctypes.c_void_p)]

def launch():
    return Launch.in_dll(fake, "fake_launch")

def number(name):
    return ctypes.c_int.in_dll(fake, name).value

def set_number(name, value):
    ctypes.c_int.in_dll(fake, name).value = value
"""


def _compile(folder: pathlib.Path, name: str, source: str) -> pathlib.Path:
    path = folder / name
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", "-x", "c", "-", "-o", path], input=source, text=True,
        check=True,
    )
    return path


@pytest.fixture(scope="module")
def fake_driver(tmp_path_factory):
    """Runs a program in a process that has the made-up driver; torch itself must be one without CUDA."""
    if shutil.which("gcc") is None or torch.version.cuda is not None or torch.version.hip is not None:
        pytest.skip("needs gcc and a torch without CUDA")
    folder = tmp_path_factory.mktemp("driver")
    libraries = [_compile(folder, "libcuda.so.1", DRIVER), _compile(folder, "libtorch_cuda.so", TORCH_CUDA)]

    def run(program: str) -> None:
        result = forked.run(["-c", PREAMBLE + program, *libraries], timeout=300)
        assert result.returncode == 0, result.stderr

    return run
