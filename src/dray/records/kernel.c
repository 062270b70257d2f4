#include "kernel.h"

#include <string.h>

/* ---- reading ---- */

typedef struct {
    int64_t timestamp_delta;
    int64_t key_at, value_at;
    int64_t key_size, value_size; /* -1 is null */
    int64_t headers;
    int64_t stop;
} fields;

static inline int64_t unzigzag(uint64_t bits) { return (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1); }

static int slow_varint(const uint8_t *data, int64_t *at, int64_t stop, int longest, int64_t *number) {
    uint64_t bits = 0;
    int64_t position = *at;
    for (int index = 0; index < longest; index++, position++) {
        if (position >= stop) return DRAY_CUT;
        uint8_t byte = data[position];
        /* The last byte of a 64-bit number has room for one bit. */
        if (index == 9 && byte > 1) return DRAY_VARINT;
        bits |= (uint64_t)(byte & 0x7f) << (7 * index);
        if (byte < 0x80) {
            if (longest == 5 && bits >> 32) return DRAY_VARINT;
            *number = unzigzag(bits);
            *at = position + 1;
            return DRAY_OK;
        }
    }
    return DRAY_VARINT;
}

static inline int varint(const uint8_t *data, int64_t *at, int64_t stop, int longest, int64_t *number) {
    if (*at < stop && data[*at] < 0x80) {
        *number = unzigzag(data[*at]);
        *at += 1;
        return DRAY_OK;
    }
    return slow_varint(data, at, stop, longest, number);
}

/* A length of at least `least`, and the bytes it announces: `at` moves behind them, `start` is where they begin. */
static inline int span(const uint8_t *data, int64_t *at, int64_t stop, int64_t least, int64_t *start, int64_t *size) {
    int fault = varint(data, at, stop, 5, size);
    if (fault) return fault;
    if (*size < least) return DRAY_LENGTH;
    if (*size > stop - *at) return DRAY_CUT;
    *start = *at;
    if (*size > 0) *at += *size;
    return DRAY_OK;
}

int dray_is_utf8(const uint8_t *text, int64_t size) {
    int64_t at = 0;
    while (at < size) {
        uint8_t lead = text[at++];
        if (lead < 0x80) continue;
        int more;
        uint8_t low = 0x80, high = 0xbf;
        if (lead >= 0xc2 && lead <= 0xdf) {
            more = 1;
        } else if (lead >= 0xe0 && lead <= 0xef) {
            more = 2;
            if (lead == 0xe0) low = 0xa0;  /* overlong */
            if (lead == 0xed) high = 0x9f; /* surrogates */
        } else if (lead >= 0xf0 && lead <= 0xf4) {
            more = 3;
            if (lead == 0xf0) low = 0x90;
            if (lead == 0xf4) high = 0x8f; /* above U+10FFFF */
        } else {
            return 0;
        }
        if (size - at < more) return 0;
        if (text[at] < low || text[at] > high) return 0;
        for (int index = 1; index < more; index++)
            if ((text[at + index] & 0xc0) != 0x80) return 0;
        at += more;
    }
    return 1;
}

/* The fields up to the header count; `at` is then at the first header. On a fault `place` has the field. */
static inline int read_fields(const uint8_t *data, int64_t *at, int64_t end, int64_t index, fields *record,
                              dray_place *place) {
    int64_t length, offset_delta;
    int fault;
    place->record = index;
    place->position = *at;
    if ((fault = varint(data, at, end, 5, &length))) return fault;
    if (length < 0) return DRAY_LENGTH;
    if (length > end - *at) return DRAY_CUT;
    int64_t stop = *at + length;
    record->stop = stop;
    place->position = *at;
    if (*at >= stop) return DRAY_CUT;
    *at += 1; /* the attributes of a record mean nothing */
    place->position = *at;
    if ((fault = varint(data, at, stop, 10, &record->timestamp_delta))) return fault;
    place->position = *at;
    if ((fault = varint(data, at, stop, 5, &offset_delta))) return fault;
    if (offset_delta != index) return DRAY_DELTA;
    place->position = *at;
    if ((fault = span(data, at, stop, -1, &record->key_at, &record->key_size))) return fault;
    place->position = *at;
    if ((fault = span(data, at, stop, -1, &record->value_at, &record->value_size))) return fault;
    place->position = *at;
    if ((fault = varint(data, at, stop, 5, &record->headers))) return fault;
    if (record->headers < 0) return DRAY_LENGTH;
    if (record->headers > (stop - *at) / 2) return DRAY_CUT; /* a header is at least two lengths */
    return DRAY_OK;
}

static inline int read_header(const uint8_t *data, int64_t *at, int64_t stop, int64_t *key_at, int64_t *key_size,
                              int64_t *value_at, int64_t *value_size, dray_place *place) {
    int fault;
    place->position = *at;
    if ((fault = span(data, at, stop, 0, key_at, key_size))) return fault;
    if (!dray_is_utf8(data + *key_at, *key_size)) return DRAY_HEADER_KEY;
    place->position = *at;
    return span(data, at, stop, -1, value_at, value_size);
}

static inline int at_end(int64_t at, int64_t stop, int fault, dray_place *place) {
    if (at == stop) return DRAY_OK;
    place->position = at;
    return fault;
}

static inline int64_t add_saturated(int64_t left, int64_t right) {
    int64_t sum;
    if (!__builtin_add_overflow(left, right, &sum)) return sum;
    return right < 0 ? INT64_MIN : INT64_MAX;
}

int dray_scan(const uint8_t *data, int64_t size, int64_t count, int64_t base_timestamp, dray_summary *summary,
              dray_place *place) {
    int64_t at = 0, least = INT64_MAX, greatest = INT64_MIN, first_null = -1;
    int fault;
    for (int64_t index = 0; index < count; index++) {
        fields record;
        if ((fault = read_fields(data, &at, size, index, &record, place))) return fault;
        for (int64_t header = 0; header < record.headers; header++) {
            int64_t key_at, key_size, value_at, value_size;
            fault = read_header(data, &at, record.stop, &key_at, &key_size, &value_at, &value_size, place);
            if (fault) return fault;
        }
        if ((fault = at_end(at, record.stop, DRAY_SPARE, place))) return fault;
        int64_t timestamp = add_saturated(base_timestamp, record.timestamp_delta);
        if (timestamp != -1) {
            if (timestamp < least) least = timestamp;
            if (timestamp > greatest) greatest = timestamp;
        }
        if (record.key_size < 0 && first_null < 0) first_null = index;
    }
    place->record = count;
    if ((fault = at_end(at, size, DRAY_TRAILING, place))) return fault;
    summary->least = least > greatest ? -1 : least;
    summary->greatest = least > greatest ? -1 : greatest;
    summary->first_null_key = first_null;
    return DRAY_OK;
}

/* ---- records to columns ---- */

static inline void tally(int64_t size, int64_t *bytes, int64_t *nulls) {
    if (size < 0)
        *nulls += 1;
    else
        *bytes += size;
}

int dray_count(const uint8_t *data, int64_t size, int64_t count, dray_totals *totals, dray_place *place) {
    int64_t at = 0, no_nulls = 0;
    int fault;
    for (int64_t index = 0; index < count; index++) {
        fields record;
        if ((fault = read_fields(data, &at, size, index, &record, place))) return fault;
        tally(record.key_size, &totals->key_bytes, &totals->key_nulls);
        tally(record.value_size, &totals->value_bytes, &totals->value_nulls);
        for (int64_t header = 0; header < record.headers; header++) {
            int64_t key_at, key_size, value_at, value_size;
            fault = read_header(data, &at, record.stop, &key_at, &key_size, &value_at, &value_size, place);
            if (fault) return fault;
            tally(key_size, &totals->header_key_bytes, &no_nulls);
            tally(value_size, &totals->header_value_bytes, &totals->header_value_nulls);
        }
        if ((fault = at_end(at, record.stop, DRAY_SPARE, place))) return fault;
        totals->headers += record.headers;
        totals->rows += 1;
    }
    place->record = count;
    return at_end(at, size, DRAY_TRAILING, place);
}

static inline void put_offset(void *offsets, int wide, int64_t row, int64_t offset) {
    if (wide)
        ((int64_t *)offsets)[row] = offset;
    else
        ((int32_t *)offsets)[row] = (int32_t)offset;
}

static inline int put(dray_binary_out *column, const uint8_t *source, int64_t size) {
    int64_t row = column->row;
    if (row >= column->rows) return DRAY_COLUMN; /* B6 */
    if (size >= 0) {
        if (size > column->bytes - column->used) return DRAY_COLUMN; /* B6 */
        if (size > 0) memcpy(column->content + column->used, source, (size_t)size);
        column->used += size;
        if (column->validity) column->validity[row >> 3] |= (uint8_t)(1u << (row & 7));
    } else if (!column->validity) {
        return DRAY_COLUMN; /* B6 */
    }
    column->row = row + 1;
    put_offset(column->offsets, column->wide, row + 1, column->used);
    return DRAY_OK;
}

int dray_fill(const uint8_t *data, int64_t size, int64_t count, int64_t base_offset, int64_t timestamp,
              int append_time, dray_columns_out *out, dray_place *place) {
    int64_t at = 0;
    int fault;
    for (int64_t index = 0; index < count; index++) {
        fields record;
        if ((fault = read_fields(data, &at, size, index, &record, place))) return fault;
        int64_t row = out->row;
        if (row >= out->rows) return DRAY_COLUMN; /* B6 */
        out->offsets[row] = add_saturated(base_offset, index);
        out->timestamps[row] = append_time ? timestamp : add_saturated(timestamp, record.timestamp_delta);
        if ((fault = put(&out->key, data + record.key_at, record.key_size))) return fault;
        if ((fault = put(&out->value, data + record.value_at, record.value_size))) return fault;
        for (int64_t header = 0; header < record.headers; header++) {
            int64_t key_at, key_size, value_at, value_size;
            fault = read_header(data, &at, record.stop, &key_at, &key_size, &value_at, &value_size, place);
            if (fault) return fault;
            if ((fault = put(&out->header_key, data + key_at, key_size))) return fault;
            if ((fault = put(&out->header_value, data + value_at, value_size))) return fault;
        }
        if ((fault = at_end(at, record.stop, DRAY_SPARE, place))) return fault;
        out->row = row + 1;
        put_offset(out->list_offsets, out->lists_wide, row + 1, out->header_key.row);
    }
    return DRAY_OK;
}

/* ---- columns to records ---- */

static inline int64_t int64_at(const uint8_t *column, int64_t row) {
    int64_t number;
    memcpy(&number, column + 8 * row, 8);
    return number;
}

static inline int64_t offset_at(const dray_binary_in *column, int64_t row) {
    if (column->wide) return int64_at(column->offsets, row);
    int32_t number;
    memcpy(&number, column->offsets + 4 * row, 4);
    return number;
}

/* Where a row's bytes begin and how many they are, -1 for null. */
static inline int get(const dray_binary_in *column, int64_t row, int64_t *start, int64_t *size) {
    if (row < 0 || row >= column->rows) return DRAY_COLUMN; /* B6 */
    *start = 0;
    *size = -1;
    if (column->validity) {
        int64_t bit = column->bit + row;
        if (!(column->validity[bit >> 3] >> (bit & 7) & 1)) return DRAY_OK;
    }
    int64_t from = offset_at(column, row), to = offset_at(column, row + 1);
    if (from < 0 || to < from || to > column->bytes || to - from > INT32_MAX) return DRAY_COLUMN; /* B6 */
    *start = from;
    *size = to - from;
    return DRAY_OK;
}

static inline uint64_t zigzag(int64_t number) { return ((uint64_t)number << 1) ^ (uint64_t)(number >> 63); }

static inline int64_t varint_size(int64_t number) {
    uint64_t bits = zigzag(number) | 1;
    return (70 - __builtin_clzll(bits)) / 7;
}

static inline uint8_t *put_varint(uint8_t *out, int64_t number) {
    uint64_t bits = zigzag(number);
    while (bits > 0x7f) {
        *out++ = (uint8_t)(bits | 0x80);
        bits >>= 7;
    }
    *out++ = (uint8_t)bits;
    return out;
}

static inline int64_t content_size(int64_t size) { return varint_size(size) + (size > 0 ? size : 0); }

static inline uint8_t *put_content(uint8_t *out, const uint8_t *source, int64_t size) {
    out = put_varint(out, size);
    if (size > 0) {
        memcpy(out, source, (size_t)size);
        out += size;
    }
    return out;
}

typedef struct {
    int64_t timestamp_delta, offset_delta;
    int64_t key_at, key_size, value_at, value_size;
    int64_t first_header, headers;
    int64_t body;
} row_plan;

/* Find a row's contents and the size of its record. */
static inline int plan_row(const dray_columns_in *columns, int64_t row, row_plan *plan) {
    int fault;
    if ((fault = get(&columns->key, row, &plan->key_at, &plan->key_size))) return fault;
    if ((fault = get(&columns->value, row, &plan->value_at, &plan->value_size))) return fault;
    if ((fault = get(&columns->header_lists, row, &plan->first_header, &plan->headers))) return fault;
    if (plan->headers < 0) plan->headers = 0;
    int64_t body = 1 + varint_size(plan->timestamp_delta) + varint_size(plan->offset_delta);
    body += content_size(plan->key_size) + content_size(plan->value_size) + varint_size(plan->headers);
    for (int64_t header = plan->first_header; header < plan->first_header + plan->headers; header++) {
        int64_t at, size;
        if ((fault = get(&columns->header_key, header, &at, &size))) return fault;
        if (size < 0) return DRAY_COLUMN; /* a header key is never null */
        body += content_size(size);
        if ((fault = get(&columns->header_value, header, &at, &size))) return fault;
        body += content_size(size);
    }
    plan->body = body;
    return body > INT32_MAX ? DRAY_COLUMN : DRAY_OK;
}

/* Write what was planned. The header columns are read a second time, so their sizes are held against `end`. */
static inline int put_row(const dray_columns_in *columns, const row_plan *plan, uint8_t *out, const uint8_t *end) {
    out = put_varint(out, plan->body);
    *out++ = 0;
    out = put_varint(out, plan->timestamp_delta);
    out = put_varint(out, plan->offset_delta);
    out = put_content(out, columns->key.content + plan->key_at, plan->key_size);
    out = put_content(out, columns->value.content + plan->value_at, plan->value_size);
    out = put_varint(out, plan->headers);
    for (int64_t header = plan->first_header; header < plan->first_header + plan->headers; header++) {
        const dray_binary_in *both[2] = {&columns->header_key, &columns->header_value};
        for (int which = 0; which < 2; which++) {
            int64_t at, size;
            int fault = get(both[which], header, &at, &size);
            if (fault) return fault;
            if (content_size(size) > end - out) return DRAY_COLUMN; /* B6 */
            out = put_content(out, both[which]->content + at, size);
        }
    }
    return out == end ? DRAY_OK : DRAY_COLUMN;
}

/* Does the row belong to the batch that began with `base`? Fills the deltas of its plan. */
static inline int follows(int64_t index, int64_t offset, int64_t previous, int64_t timestamp, int64_t base,
                          int one_time, row_plan *plan) {
    int64_t next;
    plan->offset_delta = index;
    if (__builtin_sub_overflow(timestamp, base, &plan->timestamp_delta)) return 0;
    if (index == 0) return 1;
    if (index > INT32_MAX || (one_time && timestamp != base)) return 0;
    return !__builtin_add_overflow(previous, 1, &next) && offset == next;
}

int dray_write(uint8_t *out, int64_t capacity, const dray_columns_in *columns, int64_t start, int64_t end,
               int64_t limit, int one_time, dray_written *written, dray_place *place) {
    int64_t used = 0, previous = 0, base = 0, greatest = INT64_MIN, row = start;
    written->rows = written->bytes = written->greatest = 0;
    if (limit < 0) limit = 0;
    for (; row < end; row++) {
        row_plan plan;
        place->position = place->record = row;
        if (row < 0 || row >= columns->offset_rows || row >= columns->timestamp_rows) return DRAY_COLUMN; /* B6 */
        int64_t offset = int64_at(columns->offsets, row), timestamp = int64_at(columns->timestamps, row);
        if (row == start) base = timestamp;
        if (!follows(row - start, offset, previous, timestamp, base, one_time, &plan)) break;
        int fault = plan_row(columns, row, &plan);
        if (fault) return fault;
        int64_t size = varint_size(plan.body) + plan.body;
        if (row > start && size > limit - used) break;
        if (size > capacity - used) {
            if (row == start) written->bytes = size;
            break;
        }
        if ((fault = put_row(columns, &plan, out + used, out + used + size))) return fault;
        used += size;
        previous = offset;
        if (timestamp > greatest) greatest = timestamp;
        written->rows = row - start + 1;
        written->bytes = used;
        written->greatest = greatest;
    }
    return DRAY_OK;
}
