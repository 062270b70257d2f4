/* What the parts of the kernel of heaps share: the layouts of rows, and the order of messages. */

#ifndef DRAY_HEAPS_KERNEL_H
#define DRAY_HEAPS_KERNEL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>



#define ARITY 4
#define NOWHERE UINT32_MAX
#define MOST_SLOTS (UINT32_MAX - 1)

/* Of a row, as src/dray/machine/heaps/rows.py lays it out. */
#define ROW_BYTES 76
#define AT_PARTITION 2
#define AT_RETRIES 6
#define AT_LENGTH 8
#define AT_POSITION 12
#define AT_NUMBER 16
#define AT_PRIORITY 20
#define AT_ARRIVAL 28
#define AT_PLACE 36
#define AT_ENQUEUED 44
#define AT_DUE 52
#define AT_SEQ 60
#define AT_BEGUN 68
#define FREE 0
#define READY 1
#define LEASED 3
#define DEAD 4

/* Of the rows of commands, as src/dray/machine/heaps/packets.py lays them out. */
#define ENQUEUE_BYTES 39
#define SETTLE_BYTES 37
#define NONCE_BYTES 16
#define ACK 1
#define MOST_SEQ (((uint64_t)1 << 36) - 1)
#define STAYS 3

/* What the key of an entry is made of. */
#define BY_LEAST 0
#define BY_MOST 1
#define BY_DUE 2

typedef struct {
    uint32_t key_low, key_high, arrival_low, arrival_high, slot;
} Entry;

typedef struct {
    PyObject_HEAD
    Entry *entries;
    Py_ssize_t count, room;
    uint32_t *places;
    Py_ssize_t slots;
} Order;

static inline uint64_t key_of(const Entry *entry) { return (uint64_t)entry->key_high << 32 | entry->key_low; }

static inline uint64_t arrival_of(const Entry *entry) {
    return (uint64_t)entry->arrival_high << 32 | entry->arrival_low;
}

static inline int is_less(const Entry *left, const Entry *right) {
    uint64_t a = key_of(left), b = key_of(right);
    return a < b || (a == b && arrival_of(left) < arrival_of(right));
}

static inline Entry entry_of(uint64_t key, uint64_t arrival, uint32_t slot) {
    Entry entry = {(uint32_t)key, (uint32_t)(key >> 32), (uint32_t)arrival, (uint32_t)(arrival >> 32), slot};
    return entry;
}

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

/* The key of a row's entry, by its priority. */
static inline uint64_t rank_of(uint64_t priority, int by) {
    uint64_t key = priority ^ (uint64_t)1 << 63;
    return by == BY_MOST ? ~key : key;
}

extern PyTypeObject *dray_order_type;
extern PyType_Spec dray_order_spec;
extern PyMethodDef dray_heap_methods[];

/* Room for so many entries, of slots below some; -1: there is no memory, and nothing has changed. */
int dray_order_room(Order *self, Py_ssize_t count, Py_ssize_t slots);

/* Put an entry in its place: `at` is the last one, and free. There is room. */
void dray_order_rise(Order *self, Py_ssize_t at, Entry entry);

/* The entry at a place leaves. */
void dray_order_leave(Order *self, Py_ssize_t at);

#endif
