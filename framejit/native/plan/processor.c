/* The processor that a plan's kernels run on, as it describes itself. */
#include "plan/plan.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

/* What LLVM's choice of instructions rests on: the leaves of CPUID that name a model and its instruction sets, with the
 * bits that tell a core from its neighbour, or one state of the microcode's or the hypervisor's from another, masked
 * (Intel's Software Developer's Manual, volume 2A, CPUID; AMD's Architecture Programmer's Manual, volume 3, appendix
 * E). */
typedef struct {
    unsigned leaf, subleaf;
    unsigned eax, ebx, ecx, edx;          /* masks */
} Leaf;

#define ALL 0xffffffffu

static const Leaf leaves[] = {
    {0x00, 0, 0, ALL, ALL, ALL},                        /* the maker */
    {0x01, 0, 0x0fff0ff0, 0, 0x7fffffff, ALL},          /* without the stepping; cores and caches; "under a hypervisor" */
    {0x07, 0, 0, ALL, ALL, 0x03ffd1ff},                 /* without what tells of mitigations */
    {0x07, 1, ALL, ALL, ALL, ALL},
    {0x0d, 1, 0x1f, 0, 0, 0},                           /* ways to save registers */
    {0x14, 0, 0, 0x10, 0, 0},
    {0x19, 0, 0, ALL, 0, 0},
    {0x1e, 1, ALL, 0, 0, 0},                            /* tiles */
    {0x24, 0, 0, ALL, 0, 0},                            /* AVX10 */
    {0x80000001, 0, 0, 0, ALL, ALL},
    {0x80000008, 0, 0, 0x201, 0, 0},
};

static PyObject *processor_features(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    unsigned words[sizeof leaves / sizeof *leaves + 1][4] = {{0}};
    unsigned count = 0;
    for (const Leaf *leaf = leaves; leaf < leaves + sizeof leaves / sizeof *leaves; leaf++, count++) {
        unsigned *word = words[count];
        if (!__get_cpuid_count(leaf->leaf, leaf->subleaf, &word[0], &word[1], &word[2], &word[3]))
            continue;                     /* the processor has no such leaf */
        word[0] &= leaf->eax;
        word[1] &= leaf->ebx;
        word[2] &= leaf->ecx;
        word[3] &= leaf->edx;
    }
    /* which registers the system saves: instructions that need others are as good as not there */
    if (words[1][2] & bit_OSXSAVE)
        __asm__("xgetbv" : "=a"(words[count][0]), "=d"(words[count][1]) : "c"(0));
    return PyBytes_FromStringAndSize((const char *)words, sizeof words);
}

#else

static PyObject *processor_features(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    Py_RETURN_NONE;
}

#endif

static PyMethodDef methods[] = {
    {"processor_features", processor_features, METH_NOARGS,
     "processor_features() -> bytes | None: equal on processors that run the same machine code; None where the processor "
     "does not say."},
    {NULL, NULL, 0, NULL},
};

int processor_init(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
