/* What is done to many rows at once.
 *
 * Rows are read and written in buffers that the caller gives, by slots that are
 * checked against their size.
 */

#include "kernel.h"

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

/* -- many rows at once ---------------------------------------------------- */

/* plain_run(packed, at, most, partitions, longest, most_retries, size, room): how many messages of an Enqueue, from one
 * on, are plain (no delay, nothing malformed), all of the key of the first one and counted up without a hole (or all
 * without a key). `size` is that of their object, -1: their bodies are in the command, and `room` is what they may
 * take, each `cost` besides its length. */
static PyObject *plain_run(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer packed;
    Py_ssize_t at, most;
    unsigned int partitions;
    int most_retries;
    long long longest, size, room, cost;
    if (!PyArg_ParseTuple(args, "y*nnILiLLL", &packed, &at, &most, &partitions, &longest, &most_retries, &size, &room,
                          &cost))
        return NULL;
    Py_ssize_t rows = packed.len / ENQUEUE_BYTES, count = 0;
    if (at >= 0 && at < rows) {
        const uint8_t *row = (const uint8_t *)packed.buf + at * ENQUEUE_BYTES;
        uint64_t key = little(row + 21, 2), seq = little(row + 23, 8);
        for (; at + count < rows && count < most; count++, row += ENQUEUE_BYTES) {
            int retries = (int16_t)little(row + 18, 2);
            long long position = (long long)little(row + 31, 4), length = (long long)little(row + 35, 4);
            if (little(row + 8, 8) != 0 || little(row + 16, 2) >= partitions || retries < -1 ||
                retries > most_retries || length > longest || little(row + 21, 2) != key ||
                little(row + 23, 8) > MOST_SEQ)
                break;
            if (key && little(row + 23, 8) != seq + (uint64_t)count)
                break;
            if (size >= 0 ? position + length > size : (room -= length + cost) < 0)
                break;
        }
    }
    PyBuffer_Release(&packed);
    return PyLong_FromSsize_t(count);
}

/* write_run(rows, order, by, slots, packed, at, arrival, seq, number, begun_ms, now_ms, place, retries): ready messages
 * in slots that are free, of a run that `plain_run` found. */
static PyObject *write_run(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer rows, slots, packed;
    PyObject *order, *result = NULL;
    int by, default_retries;
    Py_ssize_t at;
    unsigned long long arrival, seq, place;
    unsigned int number;
    long long begun_ms, now_ms;
    if (!PyArg_ParseTuple(args, "w*O!iy*y*nKKILLKi", &rows, dray_order_type, &order, &by, &slots, &packed, &at,
                          &arrival, &seq, &number, &begun_ms, &now_ms, &place, &default_retries))
        return NULL;
    Order *into = (Order *)order;
    Py_ssize_t count = slots.len / (Py_ssize_t)sizeof(uint32_t), highest = -1;
    const uint32_t *chosen = slots.buf;
    for (Py_ssize_t index = 0; index < count; index++)
        if ((Py_ssize_t)chosen[index] > highest)
            highest = chosen[index];
    if (at < 0 || at + count > packed.len / ENQUEUE_BYTES || highest >= rows.len / ROW_BYTES || by < BY_LEAST ||
        by > BY_MOST) {
        PyErr_SetString(PyExc_ValueError, "there are no such rows");
        goto done;
    }
    if (dray_order_room(into, into->count + count, highest + 1) < 0)
        goto done;
    for (Py_ssize_t index = 0; index < count; index++) {
        if (into->places[chosen[index]] != NOWHERE) {
            PyErr_SetString(PyExc_ValueError, "a slot is in the order already");
            goto done;
        }
    }
    const uint8_t *message = (const uint8_t *)packed.buf + at * ENQUEUE_BYTES;
    for (Py_ssize_t index = 0; index < count; index++, message += ENQUEUE_BYTES) {
        uint8_t *row = (uint8_t *)rows.buf + (Py_ssize_t)chosen[index] * ROW_BYTES;
        int retries = (int16_t)little(message + 18, 2);
        uint64_t priority = little(message, 8);
        memset(row, 0, ROW_BYTES);
        row[0] = READY;
        row[1] = message[20] & STAYS;
        memcpy(row + AT_PARTITION, message + 16, 2);
        write_little(row + AT_RETRIES, (uint64_t)(retries < 0 ? default_retries : retries), 2);
        memcpy(row + AT_LENGTH, message + 35, 4);
        memcpy(row + AT_POSITION, message + 31, 4);
        write_little(row + AT_NUMBER, number, 4);
        memcpy(row + AT_PRIORITY, message, 8);
        write_little(row + AT_ARRIVAL, arrival + (uint64_t)index, 8);
        write_little(row + AT_PLACE, place, 8);
        write_little(row + AT_ENQUEUED, (uint64_t)now_ms, 8);
        write_little(row + AT_SEQ, seq + (uint64_t)index, 8);
        write_little(row + AT_BEGUN, (uint64_t)begun_ms, 8);
        into->count++;
        Entry entry = entry_of(rank_of(priority, by), arrival + (uint64_t)index, chosen[index]);
        dray_order_rise(into, into->count - 1, entry);
    }
    result = Py_NewRef(Py_None);
done:
    PyBuffer_Release(&rows);
    PyBuffer_Release(&slots);
    PyBuffer_Release(&packed);
    return result;
}

/* lease_run(rows, order, worst, limit): the slots of the best messages, which are leased from now on. */
static PyObject *lease_run(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer rows;
    PyObject *order, *found;
    unsigned long long worst;
    Py_ssize_t limit;
    if (!PyArg_ParseTuple(args, "w*O!Kn", &rows, dray_order_type, &order, &worst, &limit))
        return NULL;
    Order *from = (Order *)order;
    if (limit > from->count)
        limit = from->count;
    found = PyList_New(0);
    while (found != NULL && limit-- > 0 && key_of(&from->entries[0]) <= worst) {
        uint32_t slot = from->entries[0].slot;
        PyObject *number = PyLong_FromUnsignedLong(slot);
        if ((Py_ssize_t)slot >= rows.len / ROW_BYTES)
            PyErr_SetString(PyExc_ValueError, "there is no such row");
        if (number == NULL || PyErr_Occurred() || PyList_Append(found, number) < 0) {
            Py_XDECREF(number);
            Py_CLEAR(found);
            break;
        }
        Py_DECREF(number);
        dray_order_leave(from, 0);
        ((uint8_t *)rows.buf)[(Py_ssize_t)slot * ROW_BYTES] = LEASED;
    }
    PyBuffer_Release(&rows);
    return found;
}

/* ack_run(rows, leases, bucket, held, nonce, packed, at): take the messages of acks, from one on, for as long as they
 * are of one lease: slots, arrivals and places. Their leases end, and their rows are free. */
static PyObject *ack_run(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer rows, nonce, packed;
    PyObject *leases, *bucket, *held, *slots = NULL, *arrivals = NULL, *places = NULL, *told = NULL;
    Py_ssize_t at;
    if (!PyArg_ParseTuple(args, "w*O!O!Oy*y*n", &rows, &PyDict_Type, &leases, &PyDict_Type, &bucket, &held, &nonce,
                          &packed, &at))
        return NULL;
    slots = PyList_New(0), arrivals = PyList_New(0), places = PyList_New(0);
    if (slots == NULL || arrivals == NULL || places == NULL)
        goto done;
    Py_ssize_t count = packed.len / SETTLE_BYTES;
    for (; at >= 0 && at < count && nonce.len == NONCE_BYTES; at++) {
        const uint8_t *said = (const uint8_t *)packed.buf + at * SETTLE_BYTES;
        Py_ssize_t slot = (Py_ssize_t)little(said + 1, 4);
        if (said[0] != ACK || slot >= rows.len / ROW_BYTES || memcmp(said + 13, nonce.buf, NONCE_BYTES) != 0)
            break;
        uint8_t *row = (uint8_t *)rows.buf + slot * ROW_BYTES;
        if (memcmp(said + 5, row + AT_ARRIVAL, 8) != 0)
            break;
        PyObject *number = PyLong_FromSsize_t(slot);
        PyObject *arrival = PyLong_FromUnsignedLongLong(little(row + AT_ARRIVAL, 8));
        PyObject *place = PyLong_FromUnsignedLongLong(little(row + AT_PLACE, 8));
        int taken = 0;
        if (number != NULL && arrival != NULL && place != NULL &&
            PyDict_GetItemWithError(leases, number) == held && !PyErr_Occurred())
            taken = PyList_Append(slots, number) == 0 && PyList_Append(arrivals, arrival) == 0 &&
                    PyList_Append(places, place) == 0 && PyDict_DelItem(leases, number) == 0 &&
                    PyDict_DelItem(bucket, number) == 0;
        Py_XDECREF(number);
        Py_XDECREF(arrival);
        Py_XDECREF(place);
        if (!taken)
            break;
        row[0] = FREE;
    }
    if (!PyErr_Occurred())
        told = PyTuple_Pack(3, slots, arrivals, places);
done:
    Py_XDECREF(slots);
    Py_XDECREF(arrivals);
    Py_XDECREF(places);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&nonce);
    PyBuffer_Release(&packed);
    return told;
}

/* -- what rows say -------------------------------------------------------- */

#define BUCKETS 256

typedef struct {
    uint64_t counts[DEAD + 1], bytes, all;
    long long oldest;
    unsigned int partition;
} Backlog;

typedef struct {
    long long priority;
    uint64_t count;
} Waiting;

static int append(PyObject *list, PyObject *item) {
    int failed = item == NULL || PyList_Append(list, item) < 0;
    Py_XDECREF(item);
    return failed ? -1 : 0;
}

static int tell_backlog(PyObject *list, Backlog *one) {
    if (!one->all)
        return 0;
    const uint64_t *counts = one->counts;
    PyObject *told = Py_BuildValue("IKKKKKL", one->partition, (unsigned long long)counts[1],
                                   (unsigned long long)counts[2], (unsigned long long)counts[3],
                                   (unsigned long long)counts[4], (unsigned long long)one->bytes, one->oldest);
    memset(one, 0, sizeof *one);
    return append(list, told);
}

static int tell_waiting(PyObject *list, Waiting *one) {
    if (!one->count)
        return 0;
    PyObject *told = Py_BuildValue("LK", one->priority, (unsigned long long)one->count);
    one->count = 0;
    return append(list, told);
}

/* census(rows): of messages, by partition: how many are ready, delayed, leased and dead, the bytes of their bodies,
 * when the oldest ready one came (0: none); and how many are ready, by priority. Each may be told more than once. */
static PyObject *census(PyObject *Py_UNUSED(module), PyObject *given) {
    Py_buffer rows;
    if (PyObject_GetBuffer(given, &rows, PyBUF_SIMPLE) < 0)
        return NULL;
    Backlog backlogs[BUCKETS] = {0};
    Waiting waiting[BUCKETS] = {0};
    PyObject *partitions = PyList_New(0), *priorities = PyList_New(0), *told = NULL;
    if (partitions == NULL || priorities == NULL)
        goto done;
    const uint8_t *row = rows.buf, *end = row + rows.len / ROW_BYTES * ROW_BYTES;
    for (; row < end; row += ROW_BYTES) {
        int state = row[0];
        if (state < READY || state > DEAD)
            continue;
        unsigned int partition = (unsigned int)little(row + AT_PARTITION, 2);
        Backlog *backlog = &backlogs[partition % BUCKETS];
        if (backlog->partition != partition && tell_backlog(partitions, backlog) < 0)
            goto done;
        backlog->partition = partition;
        backlog->all++;
        backlog->counts[state]++;
        backlog->bytes += little(row + AT_LENGTH, 4);
        if (state != READY)
            continue;
        long long enqueued = (long long)little(row + AT_ENQUEUED, 8);
        long long priority = (long long)little(row + AT_PRIORITY, 8);
        if (!backlog->oldest || enqueued < backlog->oldest)
            backlog->oldest = enqueued;
        Waiting *one = &waiting[(uint64_t)priority % BUCKETS];
        if (one->priority != priority && tell_waiting(priorities, one) < 0)
            goto done;
        one->priority = priority;
        one->count++;
    }
    for (int at = 0; at < BUCKETS; at++)
        if (tell_backlog(partitions, &backlogs[at]) < 0 || tell_waiting(priorities, &waiting[at]) < 0)
            goto done;
    told = PyTuple_Pack(2, partitions, priorities);
done:
    Py_XDECREF(partitions);
    Py_XDECREF(priorities);
    PyBuffer_Release(&rows);
    return told;
}

/* forget(rows, start, end): give the memory of some bytes back to the system; they mean nothing from now on. */
static PyObject *forget(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer rows;
    Py_ssize_t start, end;
    if (!PyArg_ParseTuple(args, "w*nn", &rows, &start, &end))
        return NULL;
    int fits = 0 <= start && start <= end && end <= rows.len;
#ifdef __linux__
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), base = (uintptr_t)rows.buf;
    if (fits) {
        uintptr_t from = (base + (uintptr_t)start + page - 1) / page * page, to = (base + (uintptr_t)end) / page * page;
        if (from < to)
            madvise((void *)from, to - from, MADV_DONTNEED); /* refused: it goes later, and all at once */
    }
#endif
    PyBuffer_Release(&rows);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "there are no such bytes");
        return NULL;
    }
    Py_RETURN_NONE;
}

PyMethodDef dray_heap_methods[] = {
    {"plain_run", plain_run, METH_VARARGS, NULL},
    {"write_run", write_run, METH_VARARGS, NULL},
    {"lease_run", lease_run, METH_VARARGS, NULL},
    {"ack_run", ack_run, METH_VARARGS, NULL},
    {"census", census, METH_O, NULL},
    {"forget", forget, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
