/* The kernel of heaps as a module of Python. What it does is described by its twin, src/dray/machine/heaps/pure.py. */

#include "kernel.h"

PyTypeObject *dray_order_type;

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_kernel", NULL, -1, dray_heap_methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__kernel(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    dray_order_type = (PyTypeObject *)PyType_FromSpec(&dray_order_spec);
    PyObject *arity = PyLong_FromLong(ARITY);
    if (dray_order_type == NULL || arity == NULL ||
        PyObject_SetAttrString((PyObject *)dray_order_type, "arity", arity) < 0 ||
        PyModule_AddObjectRef(module, "MessageOrder", (PyObject *)dray_order_type) < 0) {
        Py_XDECREF(arity);
        Py_DECREF(module);
        return NULL;
    }
    Py_DECREF(arity);
    return module;
}
