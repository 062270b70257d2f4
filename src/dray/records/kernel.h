/* Kafka records, read and written in plain C.
 *
 * No Python in here: these functions parse hostile bytes, and a C harness can
 * fuzz them under sanitizers with allocations of the exact size, which Python's
 * own buffers would hide (tools/fuzz_kernel.c). pure.py, pure_write.py and
 * pure_request.py are the twin: same results, same faults, same places (B3). No function reads or
 * writes outside its buffers, even if the input changes under its hands (B6).
 */
#ifndef DRAY_KERNEL_H
#define DRAY_KERNEL_H

#include <stdint.h>

/* The numbers of dray.records.columns.Fault. */
enum {
    DRAY_OK = 0,
    DRAY_CUT = 1,
    DRAY_VARINT = 2,
    DRAY_LENGTH = 3,
    DRAY_DELTA = 4,
    DRAY_SPARE = 5,
    DRAY_TRAILING = 6,
    DRAY_HEADER_KEY = 7,
    DRAY_COLUMN = 8
};

/* Where a fault is: the position of the field, and the index of its record. */
typedef struct {
    int64_t position;
    int64_t record;
} dray_place;

typedef struct {
    int64_t least;          /* timestamps of the records that have one, -1 when none has */
    int64_t greatest;
    int64_t first_null_key; /* -1 when every record has a key */
} dray_summary;

/* Check `count` records that must fill `data` exactly. */
int dray_scan(const uint8_t *data, int64_t size, int64_t count, int64_t base_timestamp, dray_summary *summary,
              dray_place *place);

int dray_is_utf8(const uint8_t *text, int64_t size);

/* ---- a plain Produce request ---- */

typedef struct {
    int64_t name_at, name_size; /* of its topic, in the frame */
    int64_t start, end;         /* of the batch, in the frame */
    int64_t least, greatest, first_null_key;
    int64_t producer_id;
    int32_t partition, count, producer_epoch, base_sequence;
    uint32_t crc;               /* as the batch has it: the caller checks */
} dray_row;

typedef struct {
    int32_t correlation_id, timeout_ms;
    int64_t rows;
} dray_request;

/* Read the frame of a Produce request (version 9 to 12, no length in front) into rows, one for each partition.
 *
 * 1 if it is plain: no tagged field, no transaction, an answer wanted, at most `room` partitions, each with one
 * uncompressed batch whose header is in order and whose records pass `dray_scan`, nothing behind it. Else 0, and
 * what is in `request` and `rows` means nothing: such a frame is for the code that can tell what is unusual. */
int dray_plain(const uint8_t *frame, int64_t size, dray_request *request, dray_row *rows, int64_t room);

/* ---- records to columns: count first, then fill buffers of exactly that size ---- */

typedef struct {
    int64_t rows;
    int64_t headers;
    int64_t key_bytes, key_nulls;
    int64_t value_bytes, value_nulls;
    int64_t header_key_bytes;
    int64_t header_value_bytes, header_value_nulls;
} dray_totals;

/* Check the records as `dray_scan` does and add what they need to `totals`. */
int dray_count(const uint8_t *data, int64_t size, int64_t count, dray_totals *totals, dray_place *place);

typedef struct {
    uint8_t *validity; /* NULL when nothing is null; else zeroed by the caller */
    void *offsets;     /* room for rows + 1 numbers, the first of them 0 */
    uint8_t *content;
    int64_t rows;      /* capacities */
    int64_t bytes;
    int wide;          /* 64-bit offsets, else 32 */
    int64_t row;       /* how far it is filled */
    int64_t used;
} dray_binary_out;

typedef struct {
    int64_t *offsets;
    int64_t *timestamps;
    int64_t rows, row;
    void *list_offsets; /* room for rows + 1 numbers, the first of them 0 */
    int lists_wide;
    dray_binary_out key, value, header_key, header_value;
} dray_columns_out;

/* Append the records to the columns. With `append_time`, `timestamp` is every
 * record's; else the base of their deltas. */
int dray_fill(const uint8_t *data, int64_t size, int64_t count, int64_t base_offset, int64_t timestamp,
              int append_time, dray_columns_out *out, dray_place *place);

/* ---- columns to records ---- */

typedef struct {
    const uint8_t *validity; /* NULL: nothing is null */
    const uint8_t *offsets;
    const uint8_t *content;
    int64_t bytes;
    int64_t rows;            /* what offsets and validity have room for; checked at each use */
    int64_t bit;             /* the bit of row 0 in the bitmap */
    int wide;
} dray_binary_in;

typedef struct {
    const uint8_t *offsets;
    int64_t offset_rows;
    const uint8_t *timestamps;
    int64_t timestamp_rows;
    dray_binary_in key, value, header_lists, header_key, header_value; /* lists have no content */
} dray_columns_in;

typedef struct {
    int64_t rows;
    int64_t bytes;
    int64_t greatest; /* timestamp */
} dray_written;

/* Write rows from `start` as the records of one batch.
 *
 * The batch ends before `end` where the next row would pass `limit` or the
 * capacity of `out`, does not follow in offset, lies too far in time, or, with
 * `one_time`, has another timestamp. The first row may pass `limit`; if it
 * passes the capacity, no row is written and `bytes` is what it needs. */
int dray_write(uint8_t *out, int64_t capacity, const dray_columns_in *columns, int64_t start, int64_t end,
               int64_t limit, int one_time, dray_written *written, dray_place *place);

#endif
