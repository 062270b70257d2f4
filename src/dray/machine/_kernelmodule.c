/* The kernel of streams: runs of plain batches of an Append (H8).
 *
 * Every rule stays in Python, in src/dray/machine/streams.py, stream.py, producers.py and index.py. What is here knows
 * the layouts of their rows, and takes a batch only where all of them would: an open stream, nothing malformed, nothing
 * that overflows, no producer or one that goes on where it was. It stops before the first row that is not so, and that
 * row is judged there.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

/* Of a row, as src/dray/machine/append.py lays it out. */
#define ROW_BYTES 50
#define AT_STAMP 8
#define AT_PRODUCER 24
#define AT_SEQUENCE 32
#define AT_RECORDS 36
#define AT_SIZE 40
#define AT_POSITION 44
#define AT_EPOCH 48
#define MOST_RECORDS INT32_MAX
#define BATCH_HEADER_BYTES 61
#define LENGTH_BYTES 4
#define MOST_TIME_MS 253402300799999LL

/* Of what a stream knows of a producer, as src/dray/machine/producers.py lays it out. */
#define STATE_BYTES 78
#define AT_KNOWN_EPOCH 8
#define AT_LAST 10
#define AT_USED 14
#define AT_COUNTS 18
#define AT_BASES 38
#define REMEMBERED 5
#define WRAP 0x7FFFFFFFu

/* Of a row of the index, as src/dray/machine/index.py lays it out. */
#define REST_BYTES 20
#define BLOCK 512

enum { FAILED = -1, NOT_PLAIN = 0, PLAIN = 1 };

/* Where the slots of Stream and Index lie; finding them by name again and again was a third of the time. */
static PyTypeObject *stream_type, *index_type;
static Py_ssize_t closed_at, index_at, producers_at, ends_at, stamps_at, rest_at, end_at, size_at;
static PyObject *append_name;

typedef struct {
    uint64_t stream;
    int64_t stamp, producer;
    uint32_t sequence, records, size, position;
    int16_t epoch;
} Batch;

/* What is the same for all rows of an entry. */
typedef struct {
    PyObject *streams, *given, *touched;
    uint64_t owner, now_min;
    int64_t object_size;
} Entry;

static inline uint64_t little(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int index = bytes - 1; index >= 0; index--)
        value = value << 8 | at[index];
    return value;
}

static inline void write_little(uint8_t *at, uint64_t value, int bytes) {
    for (int index = 0; index < bytes; index++, value >>= 8)
        at[index] = (uint8_t)value;
}

static Batch read_batch(const uint8_t *row) {
    Batch batch = {
        .stream = little(row, 8),
        .stamp = (int64_t)little(row + AT_STAMP, 8),
        .producer = (int64_t)little(row + AT_PRODUCER, 8),
        .sequence = (uint32_t)little(row + AT_SEQUENCE, 4),
        .records = (uint32_t)little(row + AT_RECORDS, 4),
        .size = (uint32_t)little(row + AT_SIZE, 4),
        .position = (uint32_t)little(row + AT_POSITION, 4),
        .epoch = (int16_t)little(row + AT_EPOCH, 2),
    };
    return batch;
}

static int makes_sense(const Batch *batch, int64_t object_size) {
    return batch->records > 0 && batch->records <= MOST_RECORDS && batch->size > BATCH_HEADER_BYTES &&
           batch->position >= LENGTH_BYTES && (int64_t)batch->position <= object_size - (int64_t)batch->size &&
           batch->stamp >= -1 && batch->stamp <= MOST_TIME_MS &&
           (batch->producer == -1 || (batch->producer >= 0 && batch->epoch >= 0)); /* going_on judges sequences */
}

/* The state of the producer of a batch that goes on where it was; NULL: there is something to be judged. */
static uint8_t *going_on(PyObject *states, const Batch *batch) {
    uint8_t *first = (uint8_t *)PyByteArray_AS_STRING(states);
    Py_ssize_t low = 0, count = PyByteArray_GET_SIZE(states) / STATE_BYTES, high = count;
    while (low < high) {
        Py_ssize_t middle = (low + high) >> 1;
        if ((int64_t)little(first + middle * STATE_BYTES, 8) < batch->producer)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == count)
        return NULL;
    uint8_t *state = first + low * STATE_BYTES;
    int known = (int64_t)little(state, 8) == batch->producer && (int16_t)little(state + AT_KNOWN_EPOCH, 2) == batch->epoch;
    return known && (((uint32_t)little(state + AT_LAST, 4) + 1) & WRAP) == batch->sequence ? state : NULL;
}

/* P1: the last five, the newest first. */
static void remember(uint8_t *state, const Batch *batch, int64_t base, uint64_t now_min) {
    write_little(state + AT_LAST, ((uint32_t)little(state + AT_LAST, 4) + batch->records) & WRAP, 4);
    write_little(state + AT_USED, now_min, 4);
    memmove(state + AT_COUNTS + 4, state + AT_COUNTS, 4 * (REMEMBERED - 1));
    write_little(state + AT_COUNTS, batch->records, 4);
    memmove(state + AT_BASES + 8, state + AT_BASES, 8 * (REMEMBERED - 1));
    write_little(state + AT_BASES, (uint64_t)base, 8);
}

static int append_to(PyObject *column, PyObject *value) {
    PyObject *done = PyObject_CallMethodOneArg(column, append_name, value);
    Py_XDECREF(done);
    return done == NULL ? FAILED : PLAIN;
}

static inline PyObject **slot_of(PyObject *owner, Py_ssize_t at) {
    return (PyObject **)((char *)owner + at);
}

/* Borrowed; NULL: there is an exception. */
static inline PyObject *slot(PyObject *owner, Py_ssize_t at) {
    PyObject *found = *slot_of(owner, at);
    if (found == NULL)
        PyErr_SetString(PyExc_AttributeError, "a stream or an index that was not made whole");
    return found;
}

static inline void set_slot(PyObject *owner, Py_ssize_t at, PyObject *value) {
    PyObject *before = *slot_of(owner, at);
    *slot_of(owner, at) = Py_NewRef(value);
    Py_XDECREF(before);
}

/* A number that cannot be below 0, into `number`. */
static int number_in(PyObject *owner, Py_ssize_t at, int64_t *number) {
    int overflow = 0;
    PyObject *found = slot(owner, at);
    *number = found == NULL ? -1 : PyLong_AsLongLongAndOverflow(found, &overflow);
    if (overflow > 0)
        return NOT_PLAIN;
    if (*number < 0 && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "an end or a size is below 0");
    return *number < 0 ? FAILED : PLAIN;
}

/* H1, H2: one more row, and the stream ends with it. */
static int extend(PyObject *index, PyObject *rest, int64_t end, int64_t size, const Batch *batch, const Entry *entry) {
    int outcome = FAILED;
    PyObject *ends = slot(index, ends_at), *stamps = slot(index, stamps_at);
    PyObject *end_value = PyLong_FromLongLong(end), *size_value = PyLong_FromLongLong(size);
    PyObject *stamp = PyLong_FromLongLong(batch->stamp);
    Py_ssize_t used = PyByteArray_GET_SIZE(rest);
    if (ends == NULL || stamps == NULL || end_value == NULL || size_value == NULL || stamp == NULL ||
        PyByteArray_Resize(rest, used + REST_BYTES) < 0)
        goto done;
    uint8_t *row = (uint8_t *)PyByteArray_AS_STRING(rest) + used;
    write_little(row, (uint64_t)size, 8);
    write_little(row + 8, entry->owner, 8);
    write_little(row + 16, batch->position, 4);
    if (append_to(ends, end_value) == FAILED || append_to(stamps, stamp) == FAILED)
        goto done;
    set_slot(index, end_at, end_value);
    set_slot(index, size_at, size_value);
    outcome = PLAIN;
done:
    Py_XDECREF(end_value);
    Py_XDECREF(size_value);
    Py_XDECREF(stamp);
    return outcome;
}

/* H4: its offsets for a batch that makes sense, if nothing about it has to be judged. */
static int give(PyObject *stream, PyObject *number, const Batch *batch, const Entry *entry) {
    PyObject *index = slot(stream, index_at), *states = slot(stream, producers_at);
    PyObject *rest = index == NULL || !Py_IS_TYPE(index, index_type) ? NULL : slot(index, rest_at);
    if (states == NULL || rest == NULL || !PyByteArray_Check(rest) || !PyByteArray_Check(states)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a stream has an index, and rows and states are bytearrays");
        return FAILED;
    }
    int64_t base, size;
    int known = number_in(index, end_at, &base);
    if (known == PLAIN)
        known = number_in(index, size_at, &size);
    if (known != PLAIN)
        return known;
    int64_t longer = (int64_t)batch->size + LENGTH_BYTES;
    if (base > INT64_MAX - (int64_t)batch->records || size > INT64_MAX - longer)
        return NOT_PLAIN; /* it would overflow */
    if ((PyByteArray_GET_SIZE(rest) / REST_BYTES + 1) % BLOCK == 0)
        return NOT_PLAIN; /* it fills a block, whose peak has to be found */
    uint8_t *state = NULL;
    if (batch->producer >= 0 && (state = going_on(states, batch)) == NULL)
        return NOT_PLAIN;
    if (extend(index, rest, base + (int64_t)batch->records, size + longer, batch, entry) == FAILED)
        return FAILED;
    if (state != NULL)
        remember(state, batch, base, entry->now_min);
    PyObject *answer = PyLong_FromLongLong(base);
    int failed = answer == NULL || PyList_Append(entry->given, answer) < 0 || PyList_Append(entry->touched, number) < 0;
    Py_XDECREF(answer);
    return failed ? FAILED : PLAIN;
}

static int take_row(const uint8_t *row, const Entry *entry) {
    Batch batch = read_batch(row);
    if (!makes_sense(&batch, entry->object_size))
        return NOT_PLAIN;
    PyObject *number = PyLong_FromUnsignedLongLong(batch.stream);
    if (number == NULL)
        return FAILED;
    int outcome = NOT_PLAIN;
    PyObject *stream = PyDict_GetItemWithError(entry->streams, number);
    if (stream != NULL && !Py_IS_TYPE(stream, stream_type))
        PyErr_SetString(PyExc_TypeError, "not a stream");
    else if (stream != NULL && slot(stream, closed_at) == Py_False) /* H6 */
        outcome = give(stream, number, &batch, entry);
    Py_DECREF(number);
    return PyErr_Occurred() ? FAILED : outcome;
}

/* take_plain(packed, at, streams, owner, object_size, now_min, given, touched): take rows from `at` on, each with its
 * base offset behind `given` and its stream behind `touched`; returns the first row that is not plain. */
static PyObject *take_plain(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer packed;
    Py_ssize_t at;
    long long object_size;
    unsigned long long owner, now_min;
    Entry entry;
    if (!PyArg_ParseTuple(args, "y*nO!KLKO!O!", &packed, &at, &PyDict_Type, &entry.streams, &owner, &object_size,
                          &now_min, &PyList_Type, &entry.given, &PyList_Type, &entry.touched))
        return NULL;
    entry.owner = owner, entry.object_size = object_size, entry.now_min = now_min;
    Py_ssize_t rows = packed.len / ROW_BYTES;
    int outcome = PLAIN;
    while (at >= 0 && at < rows && now_min <= UINT32_MAX) {
        outcome = take_row((const uint8_t *)packed.buf + at * ROW_BYTES, &entry);
        if (outcome != PLAIN)
            break;
        at++;
    }
    PyBuffer_Release(&packed);
    return outcome == FAILED ? NULL : PyLong_FromSsize_t(at);
}

/* Where a class has a slot; below 0: there is an exception. */
static Py_ssize_t place_of(PyObject *type, const char *name) {
    Py_ssize_t at = -1;
    PyObject *member = PyObject_GetAttrString(type, name);
    if (member != NULL && Py_IS_TYPE(member, &PyMemberDescr_Type) &&
        ((PyMemberDescrObject *)member)->d_member->type == T_OBJECT_EX)
        at = ((PyMemberDescrObject *)member)->d_member->offset;
    else if (member != NULL)
        PyErr_Format(PyExc_TypeError, "%s is not a slot", name);
    Py_XDECREF(member);
    return at;
}

/* learn(Stream, Index): what the classes look like; before anything is taken. */
static PyObject *learn(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *stream, *index;
    if (!PyArg_ParseTuple(args, "O!O!", &PyType_Type, &stream, &PyType_Type, &index))
        return NULL;
    struct {
        PyObject *type;
        const char *name;
        Py_ssize_t *at, found;
    } slots[] = {
        {stream, "closed", &closed_at, 0}, {stream, "index", &index_at, 0},   {stream, "producers", &producers_at, 0},
        {index, "_ends", &ends_at, 0},     {index, "_stamps", &stamps_at, 0}, {index, "_rest", &rest_at, 0},
        {index, "end", &end_at, 0},        {index, "size", &size_at, 0},
    };
    const size_t count = sizeof slots / sizeof *slots;
    for (size_t number = 0; number < count; number++)
        if ((slots[number].found = place_of(slots[number].type, slots[number].name)) < 0)
            return NULL; /* what was learned before still holds */
    for (size_t number = 0; number < count; number++)
        *slots[number].at = slots[number].found;
    Py_XSETREF(stream_type, (PyTypeObject *)Py_NewRef(stream));
    Py_XSETREF(index_type, (PyTypeObject *)Py_NewRef(index));
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"learn", learn, METH_VARARGS, "Where the slots of Stream and Index lie."},
    {"take_plain", take_plain, METH_VARARGS, "Take the plain batches of an Append from a row on."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_kernel", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__kernel(void) {
    if (append_name == NULL && (append_name = PyUnicode_InternFromString("append")) == NULL)
        return NULL;
    return PyModule_Create(&definition);
}
