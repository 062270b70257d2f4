/* The thin binding of kernel.c: buffers in, tuples out. It parses nothing itself. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernel.h"

/* Below this a release of the GIL costs more than the work. */
#define RELEASE_GIL_BYTES (64 * 1024)

static PyObject *raise_fault(int fault, const dray_place *place, Py_ssize_t part) {
    PyObject *args = part < 0 ? Py_BuildValue("(iLL)", fault, (long long)place->position, (long long)place->record)
                              : Py_BuildValue("(iLLn)", fault, (long long)place->position,
                                              (long long)place->record, part);
    if (args) {
        PyErr_SetObject(PyExc_ValueError, args);
        Py_DECREF(args);
    }
    return NULL;
}

static int to_int64(PyObject *number, int64_t *out) {
    *out = PyLong_AsLongLong(number);
    return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

static int wrong_count(const char *name, Py_ssize_t least, Py_ssize_t most, Py_ssize_t got) {
    if (got >= least && got <= most) return 0;
    PyErr_Format(PyExc_TypeError, "%s takes %zd to %zd arguments, %zd given", name, least, most, got);
    return -1;
}

/* ---- scan ---- */

static PyObject *py_scan(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    (void)self;
    Py_buffer records;
    int64_t count, base_timestamp;
    if (wrong_count("scan", 3, 3, given) || to_int64(args[1], &count) || to_int64(args[2], &base_timestamp)) return NULL;
    if (PyObject_GetBuffer(args[0], &records, PyBUF_SIMPLE)) return NULL;
    dray_summary summary = {0, 0, 0};
    dray_place place = {0, 0};
    int fault;
    if (records.len >= RELEASE_GIL_BYTES) {
        Py_BEGIN_ALLOW_THREADS;
        fault = dray_scan(records.buf, records.len, count, base_timestamp, &summary, &place);
        Py_END_ALLOW_THREADS;
    } else {
        fault = dray_scan(records.buf, records.len, count, base_timestamp, &summary, &place);
    }
    PyBuffer_Release(&records);
    if (fault) return raise_fault(fault, &place, -1);
    return Py_BuildValue("(LLL)", (long long)summary.least, (long long)summary.greatest,
                         (long long)summary.first_null_key);
}

/* ---- to_columns ---- */

typedef struct {
    Py_buffer records;
    int64_t count, base_offset, timestamp;
    int append_time;
} part;

static int read_part(PyObject *item, part *out) {
    if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 5) {
        PyErr_SetString(PyExc_TypeError, "a part is (records, count, base_offset, timestamp, append_time)");
        return -1;
    }
    if (to_int64(PyTuple_GET_ITEM(item, 1), &out->count) || to_int64(PyTuple_GET_ITEM(item, 2), &out->base_offset) ||
        to_int64(PyTuple_GET_ITEM(item, 3), &out->timestamp))
        return -1;
    out->append_time = PyObject_IsTrue(PyTuple_GET_ITEM(item, 4));
    if (out->append_time < 0) return -1;
    return PyObject_GetBuffer(PyTuple_GET_ITEM(item, 0), &out->records, PyBUF_SIMPLE);
}

/* A binary column on its way out: the objects that own its buffers, and the kernel's view of them. */
typedef struct {
    PyObject *validity, *offsets, *content;
    int64_t nulls;
} owned_binary;

static PyObject *new_bytes(int64_t size) { return PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size); }

static int own_offsets(int64_t rows, int wide, PyObject **owner, void **offsets) {
    *owner = new_bytes((rows + 1) * (wide ? 8 : 4));
    if (!*owner) return -1;
    *offsets = PyBytes_AS_STRING(*owner);
    memset(*offsets, 0, wide ? 8 : 4);
    return 0;
}

static int own_binary(owned_binary *owner, dray_binary_out *column, int64_t rows, int64_t bytes, int64_t nulls,
                      int64_t narrow_limit) {
    column->rows = rows;
    column->bytes = bytes;
    column->wide = bytes > narrow_limit;
    owner->nulls = nulls;
    if (nulls) {
        owner->validity = new_bytes((rows + 7) / 8);
        if (!owner->validity) return -1;
        column->validity = (uint8_t *)PyBytes_AS_STRING(owner->validity);
        memset(column->validity, 0, (size_t)((rows + 7) / 8));
    }
    if (own_offsets(rows, column->wide, &owner->offsets, &column->offsets)) return -1;
    owner->content = new_bytes(bytes);
    if (!owner->content) return -1;
    column->content = (uint8_t *)PyBytes_AS_STRING(owner->content);
    return 0;
}

static void disown(owned_binary *owner) {
    Py_XDECREF(owner->validity);
    Py_XDECREF(owner->offsets);
    Py_XDECREF(owner->content);
}

static PyObject *binary_tuple(const owned_binary *owner, const dray_binary_out *column) {
    return Py_BuildValue("(OOOLOi)", owner->validity ? owner->validity : Py_None, owner->offsets, owner->content,
                         (long long)owner->nulls, column->wide ? Py_True : Py_False, 0);
}

typedef struct {
    dray_columns_out out;
    PyObject *offsets, *timestamps, *lists;
    owned_binary key, value, header_key, header_value;
} owned_columns;

static int own_columns(owned_columns *owned, const dray_totals *totals, int64_t narrow_limit) {
    dray_columns_out *out = &owned->out;
    int64_t rows = totals->rows, headers = totals->headers;
    out->rows = rows;
    out->lists_wide = headers > narrow_limit;
    if (!(owned->offsets = new_bytes(rows * 8)) || !(owned->timestamps = new_bytes(rows * 8))) return -1;
    out->offsets = (int64_t *)PyBytes_AS_STRING(owned->offsets);
    out->timestamps = (int64_t *)PyBytes_AS_STRING(owned->timestamps);
    if (own_offsets(rows, out->lists_wide, &owned->lists, &out->list_offsets)) return -1;
    if (own_binary(&owned->key, &out->key, rows, totals->key_bytes, totals->key_nulls, narrow_limit)) return -1;
    if (own_binary(&owned->value, &out->value, rows, totals->value_bytes, totals->value_nulls, narrow_limit)) return -1;
    if (own_binary(&owned->header_key, &out->header_key, headers, totals->header_key_bytes, 0, narrow_limit)) return -1;
    return own_binary(&owned->header_value, &out->header_value, headers, totals->header_value_bytes,
                      totals->header_value_nulls, narrow_limit);
}

static PyObject *columns_tuple(const owned_columns *owned) {
    const dray_columns_out *out = &owned->out;
    return Py_BuildValue("(LOONN(OOOi)NN)", (long long)out->rows, owned->offsets, owned->timestamps,
                         binary_tuple(&owned->key, &out->key), binary_tuple(&owned->value, &out->value), Py_None,
                         owned->lists, out->lists_wide ? Py_True : Py_False, 0,
                         binary_tuple(&owned->header_key, &out->header_key),
                         binary_tuple(&owned->header_value, &out->header_value));
}

static PyObject *columns_from(part *parts, Py_ssize_t count, int64_t narrow_limit) {
    dray_totals totals;
    dray_place place = {0, 0};
    int fault = DRAY_OK;
    Py_ssize_t index;
    memset(&totals, 0, sizeof totals);
    Py_BEGIN_ALLOW_THREADS;
    for (index = 0; index < count; index++) {
        fault = dray_count(parts[index].records.buf, parts[index].records.len, parts[index].count, &totals, &place);
        if (fault) break;
    }
    Py_END_ALLOW_THREADS;
    if (fault) return raise_fault(fault, &place, index);
    owned_columns owned;
    memset(&owned, 0, sizeof owned);
    PyObject *result = NULL;
    if (own_columns(&owned, &totals, narrow_limit) == 0) {
        Py_BEGIN_ALLOW_THREADS;
        for (index = 0; index < count; index++) {
            part *one = &parts[index];
            fault = dray_fill(one->records.buf, one->records.len, one->count, one->base_offset, one->timestamp,
                              one->append_time, &owned.out, &place);
            if (fault) break;
        }
        Py_END_ALLOW_THREADS;
        result = fault ? raise_fault(fault, &place, index) : columns_tuple(&owned);
    }
    Py_XDECREF(owned.offsets);
    Py_XDECREF(owned.timestamps);
    Py_XDECREF(owned.lists);
    disown(&owned.key);
    disown(&owned.value);
    disown(&owned.header_key);
    disown(&owned.header_value);
    return result;
}

static PyObject *py_to_columns(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    (void)self;
    int64_t narrow_limit = INT32_MAX;
    if (wrong_count("to_columns", 1, 2, given) || (given == 2 && to_int64(args[1], &narrow_limit))) return NULL;
    if (narrow_limit > INT32_MAX) narrow_limit = INT32_MAX;
    PyObject *sequence = PySequence_Fast(args[0], "parts must be a sequence");
    if (!sequence) return NULL;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence), held = 0;
    part *parts = PyMem_Calloc((size_t)(count ? count : 1), sizeof *parts);
    PyObject *result = parts ? NULL : PyErr_NoMemory();
    if (parts) {
        while (held < count && read_part(PySequence_Fast_GET_ITEM(sequence, held), &parts[held]) == 0) held++;
        if (held == count) result = columns_from(parts, count, narrow_limit);
        for (Py_ssize_t index = 0; index < held; index++) PyBuffer_Release(&parts[index].records);
        PyMem_Free(parts);
    }
    Py_DECREF(sequence);
    return result;
}

/* ---- write_records ---- */

#define COLUMN_BUFFERS 16

/* The buffers behind a set of columns, held while the kernel reads them. */
typedef struct {
    Py_buffer buffers[COLUMN_BUFFERS];
    int held;
} holder;

static const uint8_t nothing[1] = {0};

static int hold(holder *all, PyObject *object, const uint8_t **start, int64_t *size) {
    Py_buffer *buffer = &all->buffers[all->held];
    if (PyObject_GetBuffer(object, buffer, PyBUF_SIMPLE)) return -1;
    all->held++;
    *start = buffer->buf ? buffer->buf : nothing;
    *size = buffer->len;
    return 0;
}

static int shape_error(void) {
    PyErr_SetString(PyExc_TypeError, "columns are not in the shape of dray.records.columns");
    return -1;
}

/* How many rows offsets and bitmap have room for; the kernel checks each row against it. */
static int hold_ranges(holder *all, PyObject *validity, PyObject *offsets, PyObject *wide, PyObject *bit,
                       dray_binary_in *column) {
    int64_t size;
    column->wide = PyObject_IsTrue(wide);
    if (column->wide < 0 || to_int64(bit, &column->bit) || hold(all, offsets, &column->offsets, &size)) return -1;
    int64_t numbers = size / (column->wide ? 8 : 4);
    column->rows = numbers > 0 ? numbers - 1 : 0;
    if (validity == Py_None) return 0;
    if (hold(all, validity, &column->validity, &size)) return -1;
    if (column->bit < 0 || column->bit > size * 8) {
        column->rows = 0;
    } else if (size * 8 - column->bit < column->rows) {
        column->rows = size * 8 - column->bit;
    }
    return 0;
}

static int hold_binary(holder *all, PyObject *tuple, dray_binary_in *column) {
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != 6) return shape_error();
    if (hold_ranges(all, PyTuple_GET_ITEM(tuple, 0), PyTuple_GET_ITEM(tuple, 1), PyTuple_GET_ITEM(tuple, 4),
                    PyTuple_GET_ITEM(tuple, 5), column))
        return -1;
    return hold(all, PyTuple_GET_ITEM(tuple, 2), &column->content, &column->bytes);
}

static int hold_columns(holder *all, PyObject *tuple, dray_columns_in *columns) {
    int64_t size;
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != 8) return shape_error();
    if (hold(all, PyTuple_GET_ITEM(tuple, 1), &columns->offsets, &size)) return -1;
    columns->offset_rows = size / 8;
    if (hold(all, PyTuple_GET_ITEM(tuple, 2), &columns->timestamps, &size)) return -1;
    columns->timestamp_rows = size / 8;
    if (hold_binary(all, PyTuple_GET_ITEM(tuple, 3), &columns->key)) return -1;
    if (hold_binary(all, PyTuple_GET_ITEM(tuple, 4), &columns->value)) return -1;
    PyObject *lists = PyTuple_GET_ITEM(tuple, 5);
    if (!PyTuple_Check(lists) || PyTuple_GET_SIZE(lists) != 4) return shape_error();
    if (hold_ranges(all, PyTuple_GET_ITEM(lists, 0), PyTuple_GET_ITEM(lists, 1), PyTuple_GET_ITEM(lists, 2),
                    PyTuple_GET_ITEM(lists, 3), &columns->header_lists))
        return -1;
    if (hold_binary(all, PyTuple_GET_ITEM(tuple, 6), &columns->header_key)) return -1;
    if (hold_binary(all, PyTuple_GET_ITEM(tuple, 7), &columns->header_value)) return -1;
    int64_t keys = columns->header_key.rows, values = columns->header_value.rows;
    columns->header_lists.bytes = keys < values ? keys : values;
    return 0;
}

static PyObject *write_into(Py_buffer *out, int64_t at, PyObject *raw, const int64_t *numbers, int one_time) {
    holder all;
    dray_columns_in columns;
    dray_written written;
    dray_place place = {0, 0};
    PyObject *result = NULL;
    all.held = 0;
    memset(&columns, 0, sizeof columns);
    if (at < 0 || at > out->len) {
        PyErr_SetString(PyExc_IndexError, "position is outside the buffer");
    } else if (hold_columns(&all, raw, &columns) == 0) {
        int fault;
        Py_BEGIN_ALLOW_THREADS;
        fault = dray_write((uint8_t *)out->buf + at, out->len - at, &columns, numbers[0], numbers[1], numbers[2],
                           one_time, &written, &place);
        Py_END_ALLOW_THREADS;
        result = fault ? raise_fault(fault, &place, -1)
                       : Py_BuildValue("(LLL)", (long long)written.rows, (long long)written.bytes,
                                       (long long)written.greatest);
    }
    for (int index = 0; index < all.held; index++) PyBuffer_Release(&all.buffers[index]);
    return result;
}

static PyObject *py_write_records(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    (void)self;
    int64_t at, numbers[3];
    if (wrong_count("write_records", 7, 7, given) || to_int64(args[1], &at)) return NULL;
    for (int index = 0; index < 3; index++)
        if (to_int64(args[3 + index], &numbers[index])) return NULL;
    int one_time = PyObject_IsTrue(args[6]);
    Py_buffer out;
    if (one_time < 0 || PyObject_GetBuffer(args[0], &out, PyBUF_WRITABLE)) return NULL;
    PyObject *result = write_into(&out, at, args[2], numbers, one_time);
    PyBuffer_Release(&out);
    return result;
}

/* ---- plain_request ---- */

#define MOST_ROWS 64

static PyObject *row_tuple(const uint8_t *frame, const dray_row *row) {
    PyObject *name = PyUnicode_DecodeUTF8((const char *)frame + row->name_at, (Py_ssize_t)row->name_size, NULL);
    if (!name) return NULL;
    return Py_BuildValue("(NiLLkiLLLLii)", name, row->partition, (long long)row->start, (long long)row->end,
                         (unsigned long)row->crc, row->count, (long long)row->least, (long long)row->greatest,
                         (long long)row->first_null_key, (long long)row->producer_id, row->producer_epoch,
                         row->base_sequence);
}

static PyObject *request_tuple(const uint8_t *frame, const dray_request *request, const dray_row *rows) {
    PyObject *list = PyList_New((Py_ssize_t)request->rows);
    if (!list) return NULL;
    for (int64_t index = 0; index < request->rows; index++) {
        PyObject *row = row_tuple(frame, &rows[index]);
        if (!row) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)index, row);
    }
    return Py_BuildValue("(iiN)", request->correlation_id, request->timeout_ms, list);
}

static PyObject *py_plain_request(PyObject *self, PyObject *arg) {
    (void)self;
    Py_buffer frame;
    dray_request request;
    dray_row rows[MOST_ROWS];
    if (PyObject_GetBuffer(arg, &frame, PyBUF_SIMPLE)) return NULL;
    int plain;
    if (frame.len >= RELEASE_GIL_BYTES) {
        Py_BEGIN_ALLOW_THREADS;
        plain = dray_plain(frame.buf, frame.len, &request, rows, MOST_ROWS);
        Py_END_ALLOW_THREADS;
    } else {
        plain = dray_plain(frame.buf, frame.len, &request, rows, MOST_ROWS);
    }
    PyObject *result = plain ? request_tuple(frame.buf, &request, rows) : Py_NewRef(Py_None);
    PyBuffer_Release(&frame);
    return result;
}

static PyMethodDef methods[] = {
    {"plain_request", py_plain_request, METH_O, "A Produce request as rows; see dray.records.pure_request."},
    {"scan", (PyCFunction)(void (*)(void))py_scan, METH_FASTCALL, "Check records; see dray.records.pure.scan."},
    {"to_columns", (PyCFunction)(void (*)(void))py_to_columns, METH_FASTCALL,
     "Records to columns; see dray.records.pure.to_columns."},
    {"write_records", (PyCFunction)(void (*)(void))py_write_records, METH_FASTCALL,
     "Columns to records; see dray.records.pure_write.write_records."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "dray.records._kernel", .m_doc = "Record parsing in C.", .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModuleDef_Init(&module); }
