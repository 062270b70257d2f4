/* Messages in their order: a heap of four children a node, and where in it each slot is.
 *
 * An entry has 20 bytes and its place 4, instead of the 56 of a Python integer in
 * a list; a node's children lie in one or two lines of the cache. Room is made
 * before anything is changed, so a call that fails has changed nothing.
 */

#include "kernel.h"

/* -- room ----------------------------------------------------------------- */

int dray_order_room(Order *self, Py_ssize_t count, Py_ssize_t slots) {
    if (count > self->room) {
        Py_ssize_t room = count + (count >> 3) + 16;
        Entry *entries = PyMem_Realloc(self->entries, (size_t)room * sizeof(Entry));
        if (entries == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        self->entries = entries;
        self->room = room;
    }
    if (slots > self->slots) {
        Py_ssize_t wanted = slots + (slots >> 3) + 16;
        uint32_t *places = PyMem_Realloc(self->places, (size_t)wanted * sizeof(uint32_t));
        if (places == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        memset(places + self->slots, 0xFF, (size_t)(wanted - self->slots) * sizeof(uint32_t));
        self->places = places;
        self->slots = wanted;
    }
    return 0;
}

static void empty(Order *self) {
    PyMem_Free(self->entries);
    PyMem_Free(self->places);
    self->entries = NULL;
    self->places = NULL;
    self->count = self->room = self->slots = 0;
}

static inline void put(Order *self, Py_ssize_t at, Entry entry) {
    self->entries[at] = entry;
    self->places[entry.slot] = (uint32_t)at;
}

/* -- the heap ------------------------------------------------------------- */

void dray_order_rise(Order *self, Py_ssize_t at, Entry entry) {
    while (at > 0) {
        Py_ssize_t parent = (at - 1) / ARITY;
        if (!is_less(&entry, &self->entries[parent]))
            break;
        put(self, at, self->entries[parent]);
        at = parent;
    }
    put(self, at, entry);
}

static void sift_down(Order *self, Py_ssize_t at, Entry entry) {
    for (;;) {
        Py_ssize_t child = at * ARITY + 1;
        if (child >= self->count)
            break;
        Py_ssize_t end = child + ARITY < self->count ? child + ARITY : self->count, least = child;
        for (child++; child < end; child++)
            if (is_less(&self->entries[child], &self->entries[least]))
                least = child;
        if (!is_less(&self->entries[least], &entry))
            break;
        put(self, at, self->entries[least]);
        at = least;
    }
    put(self, at, entry);
}

void dray_order_leave(Order *self, Py_ssize_t at) {
    self->places[self->entries[at].slot] = NOWHERE;
    Entry last = self->entries[--self->count];
    if (at == self->count)
        return;
    if (at > 0 && is_less(&last, &self->entries[(at - 1) / ARITY]))
        dray_order_rise(self, at, last);
    else
        sift_down(self, at, last);
}

static int read_u64(PyObject *value, uint64_t *result) {
    *result = PyLong_AsUnsignedLongLong(value);
    return *result == (uint64_t)-1 && PyErr_Occurred() ? -1 : 0;
}

static int read_slot(PyObject *value, Py_ssize_t *slot) {
    *slot = PyLong_AsSsize_t(value);
    if (*slot == -1 && PyErr_Occurred())
        return -1;
    if (*slot < 0 || *slot > (Py_ssize_t)MOST_SLOTS) {
        PyErr_SetString(PyExc_ValueError, "a slot is out of range");
        return -1;
    }
    return 0;
}

static int add(Order *self, uint64_t key, uint64_t arrival, Py_ssize_t slot) {
    if (dray_order_room(self, self->count + 1, slot + 1) < 0)
        return -1;
    if (self->places[slot] != NOWHERE) {
        PyErr_SetString(PyExc_ValueError, "the slot is in the order already");
        return -1;
    }
    self->count++;
    dray_order_rise(self, self->count - 1, entry_of(key, arrival, (uint32_t)slot));
    return 0;
}

/* -- methods -------------------------------------------------------------- */

static int has(Py_ssize_t given, Py_ssize_t wanted) {
    if (given == wanted)
        return 1;
    PyErr_Format(PyExc_TypeError, "%zd arguments, not %zd", wanted, given);
    return 0;
}

static PyObject *order_push(Order *self, PyObject *const *args, Py_ssize_t count) {
    uint64_t key, arrival;
    Py_ssize_t slot;
    if (!has(count, 3) || read_u64(args[0], &key) < 0 || read_u64(args[1], &arrival) < 0 ||
        read_slot(args[2], &slot) < 0 || add(self, key, arrival, slot) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *order_take(Order *self, PyObject *const *args, Py_ssize_t count) {
    uint64_t worst;
    if (!has(count, 1) || read_u64(args[0], &worst) < 0)
        return NULL;
    if (self->count == 0 || key_of(&self->entries[0]) > worst)
        return PyLong_FromLong(-1);
    uint32_t slot = self->entries[0].slot;
    dray_order_leave(self, 0);
    return PyLong_FromUnsignedLong(slot);
}

static PyObject *order_first(Order *self, PyObject *const *args, Py_ssize_t count) {
    uint64_t worst;
    if (!has(count, 1) || read_u64(args[0], &worst) < 0)
        return NULL;
    if (self->count == 0 || key_of(&self->entries[0]) > worst)
        return PyLong_FromLong(-1);
    return PyLong_FromUnsignedLong(self->entries[0].slot);
}

static PyObject *order_first_key(Order *self, PyObject *Py_UNUSED(nothing)) {
    if (self->count == 0)
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(key_of(&self->entries[0]));
}

static PyObject *order_remove(Order *self, PyObject *const *args, Py_ssize_t count) {
    Py_ssize_t slot;
    if (!has(count, 3) || read_slot(args[2], &slot) < 0)
        return NULL;
    if (slot >= self->slots || self->places[slot] == NOWHERE) {
        PyErr_SetString(PyExc_KeyError, "the slot is not in the order");
        return NULL;
    }
    dray_order_leave(self, self->places[slot]);
    Py_RETURN_NONE;
}

static PyObject *order_entry(Order *self, PyObject *const *args, Py_ssize_t count) {
    if (!has(count, 1))
        return NULL;
    Py_ssize_t at = PyLong_AsSsize_t(args[0]);
    if (at == -1 && PyErr_Occurred())
        return NULL;
    if (at < 0 || at >= self->count) {
        PyErr_SetString(PyExc_IndexError, "there is no such entry");
        return NULL;
    }
    Entry *entry = &self->entries[at];
    return Py_BuildValue("KKI", (unsigned long long)key_of(entry), (unsigned long long)arrival_of(entry),
                         (unsigned int)entry->slot);
}

/* load(rows, start, end, state, by): entries of the rows in some slots that have a state, behind the others and in no
 * order yet: `arrange` follows. */
static PyObject *order_load(Order *self, PyObject *args) {
    Py_buffer rows;
    Py_ssize_t start, end, found = 0;
    int state, by;
    if (!PyArg_ParseTuple(args, "y*nnii", &rows, &start, &end, &state, &by))
        return NULL;
    if (start < 0 || end < start || end > rows.len / ROW_BYTES || end > (Py_ssize_t)MOST_SLOTS || by < BY_LEAST ||
        by > BY_DUE) {
        PyBuffer_Release(&rows);
        PyErr_SetString(PyExc_ValueError, "there are no such rows");
        return NULL;
    }
    const uint8_t *first = (const uint8_t *)rows.buf + start * ROW_BYTES, *row = first;
    for (Py_ssize_t slot = start; slot < end; slot++, row += ROW_BYTES)
        found += row[0] == state;
    if (found && dray_order_room(self, self->count + found, end) < 0) {
        PyBuffer_Release(&rows);
        return NULL;
    }
    row = first;
    for (Py_ssize_t slot = start; found && slot < end; slot++, row += ROW_BYTES) {
        if (row[0] != state || self->places[slot] != NOWHERE)
            continue;
        uint64_t key = by == BY_DUE ? little(row + AT_DUE, 8) : rank_of(little(row + AT_PRIORITY, 8), by);
        put(self, self->count++, entry_of(key, little(row + AT_ARRIVAL, 8), (uint32_t)slot));
        found--;
    }
    PyBuffer_Release(&rows);
    Py_RETURN_NONE;
}

/* arrange(end, count): put the nodes before `end` in order, `count` of them, from the last one; where the next call
 * goes on. Nodes from `end` on are in order already. */
static PyObject *order_arrange(Order *self, PyObject *const *args, Py_ssize_t given) {
    if (!has(given, 2))
        return NULL;
    Py_ssize_t end = PyLong_AsSsize_t(args[0]), count = PyLong_AsSsize_t(args[1]);
    if ((end == -1 || count == -1) && PyErr_Occurred())
        return NULL;
    Py_ssize_t parents = self->count > 1 ? (self->count - 2) / ARITY + 1 : 0;
    if (end > parents)
        end = parents;
    while (end > 0 && count-- > 0) {
        end--;
        sift_down(self, end, self->entries[end]);
    }
    return PyLong_FromSsize_t(end < 0 ? 0 : end);
}

static PyObject *order_cut(Order *self, PyObject *const *args, Py_ssize_t given) {
    if (!has(given, 1))
        return NULL;
    Py_ssize_t count = PyLong_AsSsize_t(args[0]);
    if (count == -1 && PyErr_Occurred())
        return NULL;
    while (self->count > 0 && count-- > 0)
        self->places[self->entries[--self->count].slot] = NOWHERE;
    if (self->count == 0)
        empty(self);
    Py_RETURN_NONE;
}

static PyObject *order_ends(Order *self, PyObject *Py_UNUSED(nothing)) { return PyLong_FromSsize_t(self->count); }

static PyObject *order_clear(Order *self, PyObject *Py_UNUSED(nothing)) {
    empty(self);
    Py_RETURN_NONE;
}

static Py_ssize_t order_length(Order *self) { return self->count; }

static PyObject *order_sizeof(Order *self, PyObject *Py_UNUSED(nothing)) {
    size_t size = sizeof(Order) + (size_t)self->room * sizeof(Entry) + (size_t)self->slots * sizeof(uint32_t);
    return PyLong_FromSize_t(size);
}

static void order_dealloc(Order *self) {
    empty(self);
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

#define FAST(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef order_methods[] = {
    {"push", FAST(order_push), METH_FASTCALL, NULL},
    {"take", FAST(order_take), METH_FASTCALL, NULL},
    {"first", FAST(order_first), METH_FASTCALL, NULL},
    {"first_key", (PyCFunction)order_first_key, METH_NOARGS, NULL},
    {"remove", FAST(order_remove), METH_FASTCALL, NULL},
    {"entry", FAST(order_entry), METH_FASTCALL, NULL},
    {"ends", (PyCFunction)order_ends, METH_NOARGS, NULL},
    {"load", (PyCFunction)order_load, METH_VARARGS, NULL},
    {"arrange", FAST(order_arrange), METH_FASTCALL, NULL},
    {"cut", FAST(order_cut), METH_FASTCALL, NULL},
    {"clear", (PyCFunction)order_clear, METH_NOARGS, NULL},
    {"__sizeof__", (PyCFunction)order_sizeof, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot order_slots[] = {
    {Py_tp_dealloc, order_dealloc},
    {Py_tp_methods, order_methods},
    {Py_sq_length, order_length},
    {Py_tp_new, PyType_GenericNew},
    {0, NULL},
};

PyType_Spec dray_order_spec = {
    .name = "dray.machine.heaps._kernel.MessageOrder",
    .basicsize = sizeof(Order),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = order_slots,
};
