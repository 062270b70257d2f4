/* Fuzzes kernel.c and request.c under sanitizers; built and run by fuzz_kernel.py.
 *
 * Every input is copied into an allocation of exactly its size, and every
 * output buffer has exactly the counted size: Python's own buffers are larger
 * than they say, so a read one byte too far would go unseen there.
 *
 *     fuzz_kernel RECORDS FRAMES CASES SEED
 *
 * RECORDS and FRAMES: repeated (u32 count, u32 size, bytes), little-endian;
 * the count is that of the records, or of the partitions in a frame.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

typedef struct {
    uint32_t count, size;
    uint8_t *bytes;
} sample;

static uint64_t state;

static uint64_t dice(uint64_t below) { /* splitmix64 */
    uint64_t mixed = (state += 0x9e3779b97f4a7c15u);
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return (mixed ^ (mixed >> 31)) % below;
}

static void *exactly(size_t size) {
    void *memory = malloc(size);
    if (!memory && size) abort();
    return memory;
}

static void must(int truth, const char *what) {
    if (truth) return;
    fprintf(stderr, "broken: %s\n", what);
    abort();
}

/* ---- inputs ---- */

static const uint8_t edges[] = {0x00, 0x01, 0x02, 0x7f, 0x80, 0x81, 0xc2, 0xe0, 0xed, 0xf0, 0xf4, 0xfe, 0xff};

static uint32_t damage(uint8_t *bytes, uint32_t size, uint32_t room) {
    for (uint64_t edits = dice(4); edits; edits--) {
        uint32_t at = size ? (uint32_t)dice(size) : 0;
        switch (dice(6)) {
        case 0:
            if (size) bytes[at] ^= (uint8_t)(1u << dice(8));
            break;
        case 1:
            if (size) bytes[at] = edges[dice(sizeof edges)];
            break;
        case 2:
            size = at;
            break;
        case 3:
            if (size) {
                memmove(bytes + at, bytes + at + 1, size - at - 1);
                size--;
            }
            break;
        case 4:
            if (size < room) {
                memmove(bytes + at + 1, bytes + at, size - at);
                bytes[at] = edges[dice(sizeof edges)];
                size++;
            }
            break;
        default:
            if (size < room) bytes[size++] = (uint8_t)dice(256);
        }
    }
    return size;
}

/* ---- records to columns and back ---- */

static void open_binary(dray_binary_out *column, int64_t rows, int64_t bytes, int64_t nulls, int wide) {
    column->rows = rows;
    column->bytes = bytes;
    column->wide = wide;
    column->validity = nulls ? calloc((size_t)(rows + 7) / 8, 1) : NULL;
    column->offsets = exactly((size_t)(rows + 1) * (wide ? 8 : 4));
    memset(column->offsets, 0, wide ? 8 : 4);
    column->content = exactly((size_t)bytes);
}

static dray_binary_in reopened(const dray_binary_out *column) {
    dray_binary_in back = {column->validity, column->offsets, column->content, column->bytes, column->rows, 0,
                           column->wide};
    return back;
}

static void close_binary(dray_binary_out *column) {
    free(column->validity);
    free(column->offsets);
    free(column->content);
}

/* A number in the offsets replaced by another: the writer must refuse, not follow it. */
static void spoil(void *offsets, int wide, int64_t rows) {
    uint64_t which = dice((uint64_t)rows + 1);
    int64_t lie = dice(6) == 0 ? INT64_MIN : (int64_t)dice(dice(2) ? 20 : 2000) - 10;
    if (wide)
        ((int64_t *)offsets)[which] = lie;
    else
        ((int32_t *)offsets)[which] = (int32_t)lie;
}

static void write_back(dray_columns_out *out, int64_t size, int spoiled) {
    dray_columns_in in;
    dray_written written;
    dray_place place;
    memset(&in, 0, sizeof in);
    /* Sometimes with rows that the other columns do not have. */
    int64_t surplus = (int64_t)dice(3);
    in.offset_rows = in.timestamp_rows = out->rows + surplus;
    int64_t *offsets = exactly((size_t)in.offset_rows * 8), *timestamps = exactly((size_t)in.offset_rows * 8);
    for (int64_t row = 0; row < in.offset_rows; row++) {
        offsets[row] = row < out->rows ? out->offsets[row] : row ? offsets[row - 1] + 1 : 0;
        timestamps[row] = row < out->rows ? out->timestamps[row] : 0;
    }
    in.offsets = (const uint8_t *)offsets;
    in.timestamps = (const uint8_t *)timestamps;
    in.key = reopened(&out->key);
    in.value = reopened(&out->value);
    in.header_key = reopened(&out->header_key);
    in.header_value = reopened(&out->header_value);
    in.header_lists.offsets = out->list_offsets;
    in.header_lists.rows = out->rows;
    in.header_lists.bytes = out->header_key.rows + surplus;
    in.header_lists.wide = out->lists_wide;
    int64_t room = dice(3) ? size : (int64_t)dice((uint64_t)size + 1);
    uint8_t *records = exactly((size_t)room);
    int64_t limit = dice(3) ? INT64_MAX : (int64_t)dice(200) - 20;
    int64_t start = dice(3) ? 0 : (int64_t)dice((uint64_t)out->rows + 2) - 1;
    int64_t end = out->rows + (int64_t)dice(4);
    int fault = dray_write(records, room, &in, start, end, limit, (int)dice(2), &written, &place);
    if (!fault) {
        must(written.rows >= 0 && written.rows <= end - start, "no more rows than asked for");
        must(written.rows == 0 || written.bytes <= room, "no more bytes than there is room");
        dray_summary summary;
        if (!spoiled && written.rows) {
            fault = dray_scan(records, written.bytes, written.rows, 0, &summary, &place);
            must(fault == DRAY_OK, "what was written can be read");
        }
    }
    free(records);
    free(offsets);
    free(timestamps);
}

static void columns(const uint8_t *data, int64_t size, int64_t count, int agreed) {
    dray_totals totals;
    dray_place place;
    memset(&totals, 0, sizeof totals);
    int fault = dray_count(data, size, count, &totals, &place);
    must(fault == agreed, "count and scan give one verdict");
    if (fault) return;
    dray_columns_out out;
    memset(&out, 0, sizeof out);
    int wide = (int)dice(2);
    /* Sometimes less room than counted, as if the input had changed after the counting. */
    int64_t missing = dice(8) ? 0 : 1;
    out.rows = totals.rows;
    out.offsets = exactly((size_t)totals.rows * 8);
    out.timestamps = exactly((size_t)totals.rows * 8);
    out.lists_wide = wide;
    out.list_offsets = exactly((size_t)(totals.rows + 1) * (wide ? 8 : 4));
    memset(out.list_offsets, 0, wide ? 8 : 4);
    int64_t value_bytes = totals.value_bytes > missing ? totals.value_bytes - missing : totals.value_bytes;
    int64_t headers = totals.headers > missing ? totals.headers - missing : totals.headers;
    open_binary(&out.key, totals.rows, totals.key_bytes, totals.key_nulls, wide);
    open_binary(&out.value, totals.rows, value_bytes, totals.value_nulls, wide);
    open_binary(&out.header_key, headers, totals.header_key_bytes, 0, wide);
    open_binary(&out.header_value, headers, totals.header_value_bytes, totals.header_value_nulls, wide);
    fault = dray_fill(data, size, count, (int64_t)dice(1000), (int64_t)dice(1000), (int)dice(2), &out, &place);
    int whole = value_bytes == totals.value_bytes && headers == totals.headers;
    must(fault == (whole ? DRAY_OK : DRAY_COLUMN), "what was counted fits, what was not is refused");
    if (!fault) {
        dray_binary_out *all[] = {&out.key, &out.value, &out.header_key, &out.header_value};
        int spoiled = dice(3) == 0;
        dray_binary_out *victim = all[dice(4)];
        if (spoiled && dice(2))
            spoil(victim->offsets, victim->wide, victim->rows);
        else if (spoiled)
            spoil(out.list_offsets, out.lists_wide, out.rows);
        write_back(&out, size, spoiled);
    }
    close_binary(&out.key);
    close_binary(&out.value);
    close_binary(&out.header_key);
    close_binary(&out.header_value);
    free(out.offsets);
    free(out.timestamps);
    free(out.list_offsets);
}

static void one_case(const sample *from, uint64_t *accepted) {
    uint32_t room = from->size + 8;
    uint8_t *draft = exactly(room);
    memcpy(draft, from->bytes, from->size);
    uint32_t size = damage(draft, from->size, room);
    uint8_t *data = exactly(size);
    memcpy(data, draft, size);
    free(draft);
    int64_t count = dice(20) ? from->count : (int64_t)dice(5) - 1;
    dray_summary summary;
    dray_place place;
    int fault = dray_scan(data, size, count, dice(2) ? INT64_MAX : (int64_t)dice(1000), &summary, &place);
    if (fault) must(place.position >= 0 && place.position <= size, "a fault lies within the records");
    if (!fault) ++*accepted;
    columns(data, size, count, fault);
    free(data);
}

/* ---- Produce requests ---- */

static void check_row(const dray_row *row, const uint8_t *frame, int64_t size) {
    dray_summary summary;
    dray_place place;
    must(row->name_at >= 0 && row->name_size >= 0 && row->name_size <= size - row->name_at, "a name in the frame");
    must(row->start >= 0 && row->end - row->start >= 61 && row->end <= size, "a batch in the frame");
    must(row->count > 0, "records in a batch");
    int fault = dray_scan(frame + row->start + 61, row->end - row->start - 61, row->count, 0, &summary, &place);
    must(fault == DRAY_OK && summary.first_null_key == row->first_null_key, "request and scan give one verdict");
}

static void one_frame(const sample *from, uint64_t *accepted) {
    uint32_t room = from->size + 8;
    uint8_t *draft = exactly(room);
    memcpy(draft, from->bytes, from->size);
    uint32_t size = damage(draft, from->size, room);
    uint8_t *frame = exactly(size);
    memcpy(frame, draft, size);
    free(draft);
    int64_t most = dice(4) ? from->count : (int64_t)dice(from->count + 1);
    dray_row *rows = exactly((size_t)most * sizeof *rows);
    dray_request request;
    if (dray_plain(frame, size, &request, rows, most)) {
        must(request.rows > 0 && request.rows <= most, "no more rows than there is room");
        for (int64_t row = 0; row < request.rows; row++) check_row(&rows[row], frame, size);
        ++*accepted;
    }
    free(rows);
    free(frame);
}

static uint32_t u32(FILE *file, int *more) {
    uint8_t raw[4];
    *more = fread(raw, 1, 4, file) == 4;
    return *more ? (uint32_t)raw[0] | (uint32_t)raw[1] << 8 | (uint32_t)raw[2] << 16 | (uint32_t)raw[3] << 24 : 0;
}

#define MOST 4096

static size_t load(const char *name, sample *samples) {
    FILE *file = fopen(name, "rb");
    size_t held = 0;
    if (!file) exit(2);
    for (int more = 1; held < MOST;) {
        samples[held].count = u32(file, &more);
        if (!more) break;
        samples[held].size = u32(file, &more);
        samples[held].bytes = exactly(samples[held].size);
        if (fread(samples[held].bytes, 1, samples[held].size, file) != samples[held].size) exit(2);
        held++;
    }
    fclose(file);
    if (!held) exit(2);
    return held;
}

int main(int argc, char **argv) {
    static sample records[MOST], frames[MOST];
    if (argc != 5) return 2;
    size_t lists = load(argv[1], records), requests = load(argv[2], frames);
    uint64_t cases = strtoull(argv[3], NULL, 10), accepted = 0, plain = 0;
    state = strtoull(argv[4], NULL, 10);
    for (uint64_t done = 0; done < cases; done++) {
        one_case(&records[dice(lists)], &accepted);
        one_frame(&frames[dice(requests)], &plain);
    }
    for (size_t at = 0; at < lists; at++) free(records[at].bytes);
    for (size_t at = 0; at < requests; at++) free(frames[at].bytes);
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", cases, accepted, plain);
    return 0;
}
