#include "kernel.h"

#include <string.h>

/* A plain Produce request, read in one go.
 *
 *     key i16 | version i16 | correlation i32 | client id (i16, bytes) | tags
 *     transactional id | acks i16 | timeout i32 | topics: name, partitions: index i32, batch, tags | tags | tags
 *
 * Lengths and counts are unsigned varints that are one too high, 0 being null.
 * Every one is held against what is left of the frame before it is used. */

#define BATCH_HEADER 61
#define LENGTH_FROM 12
#define MAGIC 2

typedef struct {
    const uint8_t *bytes;
    int64_t at, end;
} cursor;

static inline uint32_t u16_at(const uint8_t *from) { return (uint32_t)from[0] << 8 | from[1]; }

static inline uint32_t u32_at(const uint8_t *from) { return u16_at(from) << 16 | u16_at(from + 2); }

static inline uint64_t u64_at(const uint8_t *from) { return (uint64_t)u32_at(from) << 32 | u32_at(from + 4); }

static inline int64_t left(const cursor *frame) { return frame->end - frame->at; }

/* A length or count that is not null and at most `most`. */
static int counted(cursor *frame, int64_t *number, int64_t smallest) {
    uint64_t bits = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (left(frame) < 1) return 0;
        uint8_t byte = frame->bytes[frame->at++];
        bits |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *number = (int64_t)bits - 1;
            return *number >= 0 && *number <= left(frame) / smallest;
        }
    }
    return 0;
}

/* The byte 0: an empty section of tags, or a null. */
static inline int nothing(cursor *frame) { return left(frame) >= 1 && frame->bytes[frame->at++] == 0; }

static int read_head(cursor *frame, dray_request *request) {
    if (left(frame) < 10) return 0;
    request->correlation_id = (int32_t)u32_at(frame->bytes + 4);
    int64_t client = (int16_t)u16_at(frame->bytes + 8);
    frame->at = 10;
    if (client < -1 || client > left(frame)) return 0;
    if (client > 0) {
        if (!dray_is_utf8(frame->bytes + frame->at, client)) return 0;
        frame->at += client;
    }
    if (!nothing(frame) || !nothing(frame) || left(frame) < 6) return 0; /* tags; a transactional id */
    int acks = (int16_t)u16_at(frame->bytes + frame->at);
    request->timeout_ms = (int32_t)u32_at(frame->bytes + frame->at + 2);
    frame->at += 6;
    return acks == -1 || acks == 1;
}

static int read_batch(const uint8_t *batch, int64_t size, dray_row *row) {
    if (size < BATCH_HEADER) return 0;
    int64_t length = (int32_t)u32_at(batch + 8), last_delta = (int32_t)u32_at(batch + 23);
    row->crc = u32_at(batch + 17);
    row->producer_id = (int64_t)u64_at(batch + 43);
    row->producer_epoch = (int16_t)u16_at(batch + 51);
    row->base_sequence = (int32_t)u32_at(batch + 53);
    row->count = (int32_t)u32_at(batch + 57);
    if (u64_at(batch) != 0 || length + LENGTH_FROM != size || batch[16] != MAGIC) return 0;
    if (u16_at(batch + 21) != 0) return 0; /* compressed, append time, transactional, control, or not known */
    if (row->count <= 0 || row->count != last_delta + 1) return 0;
    if (row->producer_id >= 0 && row->base_sequence < 0) return 0;
    if (row->producer_id < 0) { /* epoch and sequence mean nothing then */
        row->producer_id = -1;
        row->producer_epoch = row->base_sequence = -1;
    }
    dray_summary summary;
    dray_place place;
    int64_t base_timestamp = (int64_t)u64_at(batch + 27);
    if (dray_scan(batch + BATCH_HEADER, size - BATCH_HEADER, row->count, base_timestamp, &summary, &place)) return 0;
    row->least = summary.least;
    row->greatest = summary.greatest;
    row->first_null_key = summary.first_null_key;
    return 1;
}

static int read_partition(cursor *frame, dray_row *row) {
    int64_t size;
    if (left(frame) < 4) return 0;
    row->partition = (int32_t)u32_at(frame->bytes + frame->at);
    frame->at += 4;
    if (!counted(frame, &size, 1)) return 0;
    row->start = frame->at;
    row->end = frame->at += size;
    return nothing(frame) && read_batch(frame->bytes + row->start, size, row);
}

int dray_plain(const uint8_t *bytes, int64_t size, dray_request *request, dray_row *rows, int64_t room) {
    cursor frame = {bytes, 0, size};
    int64_t topics, partitions, name_at, name_size;
    const dray_row *before = NULL;
    request->rows = 0;
    if (!read_head(&frame, request) || !counted(&frame, &topics, 3)) return 0;
    for (int64_t topic = 0; topic < topics; topic++) {
        if (!counted(&frame, &name_size, 1)) return 0;
        name_at = frame.at;
        frame.at += name_size;
        if (!dray_is_utf8(bytes + name_at, name_size) || !counted(&frame, &partitions, 6)) return 0;
        if (before && before->name_size == name_size && !memcmp(bytes + before->name_at, bytes + name_at, (size_t)name_size))
            return 0; /* rows of two topics with one name could not be told apart */
        if (!partitions || partitions > room - request->rows) return 0;
        for (int64_t partition = 0; partition < partitions; partition++) {
            dray_row *row = &rows[request->rows++];
            row->name_at = name_at;
            row->name_size = name_size;
            if (!read_partition(&frame, row)) return 0;
            before = row;
        }
        if (!nothing(&frame)) return 0;
    }
    return nothing(&frame) && left(&frame) == 0 && request->rows > 0;
}
